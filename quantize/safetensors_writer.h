// Writes safetensors files piece by piece: the header from a plan, then bytes in any order.
//
// The plan's tensors go to files of about `shard_bytes`, in the order of the plan. Within a file
// they are sorted by width of dtype, widest first, then by name, so that each begins at a multiple
// of its element's size. One file is "model.safetensors"; several are
// "model-00001-of-00003.safetensors"
// ... with "model.safetensors.index.json". Equal plans and bytes give equal files. Memory grows
// with the number of tensors, never with their bytes; a file is open only while tensors of it are
// missing.
//
// Source of the format: safetensors' README; file names and index: Hugging Face transformers.
// Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "model/io/file_descriptor.h"
#include "model/safetensors/tensor_dtype.h"
#include "quantize/output_folder.h"

namespace switchyard {

struct PlannedTensor {
  std::string name;
  TensorDtype dtype = TensorDtype::kBf16;
  std::vector<std::int64_t> shape;
};

// Errors: kInvalidArgument (BAD_SHAPE): a negative dimension, more than 2^63 bits, or a tensor that
// ends inside a byte.
absl::StatusOr<std::uint64_t> BytesOf(const PlannedTensor& tensor);

class SafetensorsWriter {
 public:
  // `folder` outlives the writer. A tensor larger than `shard_bytes` has a file of its own.
  // Errors: those of BytesOf; kInvalidArgument (BAD_CONFIG): a name twice, shard_bytes 0, more
  // than 99,999 files.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(
      OutputFolder* folder, const std::vector<PlannedTensor>& plan, std::uint64_t shard_bytes);

  // The next bytes of a tensor: in one piece or in several, from its first byte to its last;
  // different tensors in any order. The first piece for a file makes it and its header.
  // Errors: kInvalidArgument (BAD_REQUEST): a name that is not planned, more bytes than planned;
  // those of OutputFolder.
  absl::Status Write(absl::string_view name, std::span<const std::byte> bytes);

  // Writes the index, if there is one. Call once, last.
  // Errors: kFailedPrecondition (STAGE_ORDER) naming a tensor that lacks bytes; those of
  // OutputFolder.
  absl::Status Finish();

  [[nodiscard]] std::uint64_t total_bytes() const { return total_bytes_; }  // of tensors
  [[nodiscard]] std::vector<std::string> files() const;

 private:
  struct Entry {
    PlannedTensor tensor;
    std::size_t shard = 0;
    std::uint64_t begin = 0;  // in its file's data
    std::uint64_t bytes = 0;
    std::uint64_t written = 0;
  };
  struct Shard {
    std::string name;
    std::uint64_t data_bytes = 0;
    std::uint64_t header_bytes = 0;  // 0 until it is written
    std::uint64_t missing = 0;       // bytes of tensors
    FileDescriptor file;
  };

  explicit SafetensorsWriter(OutputFolder* folder) : folder_(folder) {}
  absl::Status AddAll(const std::vector<PlannedTensor>& plan, std::uint64_t shard_bytes);
  absl::Status NameShards();
  void LayOut();
  [[nodiscard]] std::string HeaderOf(std::size_t shard) const;
  [[nodiscard]] std::string PathOf(const Shard& shard) const;
  absl::Status Open(std::size_t index);
  absl::Status CloseWhenWhole(Shard& shard);
  absl::Status WriteIndex();

  OutputFolder* const folder_;
  std::vector<Entry> entries_;  // by shard, then as they lie in it
  std::map<std::string, std::size_t, std::less<>> by_name_;
  std::vector<Shard> shards_;
  std::uint64_t total_bytes_ = 0;
};

}  // namespace switchyard
