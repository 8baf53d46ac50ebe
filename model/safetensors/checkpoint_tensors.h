// The tensors of a checkpoint folder in the Hugging Face layout, for any model.
//
//   model.safetensors                  one file, or
//   model.safetensors.index.json       weight_map: tensor -> shard; shards beside it
//
// Other names are found as weight_files.h says. With an index, index and shards must agree: every
// listed tensor is in its shard, and no shard holds another. Files are taken from the folder
// itself, never through symbolic links. Immutable after Open; all calls are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "model/io/file_descriptor.h"
#include "model/safetensors/safetensors.h"

namespace switchyard {

class CheckpointTensors {
 public:
  // Reads headers, no tensor. Keeps a descriptor of the folder and one for each file open.
  // Errors: (CHECKPOINT) with the kinds of checkpoint_error.h.
  static absl::StatusOr<CheckpointTensors> Open(const std::string& dir,
                                                const SafetensorsLimits& limits = {});

  // nullptr when there is no such tensor. O(log n). Lives as long as the checkpoint.
  [[nodiscard]] const TensorInfo* Find(absl::string_view name) const;
  // True when some tensor's name begins with `prefix`. O(log n).
  [[nodiscard]] bool HasPrefix(absl::string_view prefix) const;
  // All bytes of the tensor into `out` of exactly its size. Errors: kNotFound (TENSOR_NOT_FOUND),
  // those of SafetensorsFile::Read.
  absl::Status Read(absl::string_view name, std::span<std::byte> out) const;
  // The bytes [offset, offset + out.size()). Errors as Read.
  absl::Status ReadRange(absl::string_view name, std::uint64_t offset,
                         std::span<std::byte> out) const;
  // Ascending.
  [[nodiscard]] std::vector<std::string> names() const;
  // Path of the file that holds `name`; empty when there is no such tensor.
  [[nodiscard]] std::string FileOf(absl::string_view name) const;
  [[nodiscard]] const std::string& dir() const { return dir_; }
  // Whole sentences for an operator: a metadata.total_size that is not the sum of the tensors.
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }

  // The text of a file beside the tensors; nullopt when there is none of that bare name.
  // Errors: (CHECKPOINT) IO_ERROR, NOT_A_REGULAR_FILE, HEADER_TOO_LARGE above `bytes_max`.
  [[nodiscard]] absl::StatusOr<std::optional<std::string>> ReadText(const std::string& name,
                                                                    std::uint64_t bytes_max) const;

 private:
  struct Entry {
    const TensorInfo* tensor = nullptr;
    const SafetensorsFile* file = nullptr;
  };

  CheckpointTensors(std::string dir, FileDescriptor folder,
                    std::vector<std::unique_ptr<SafetensorsFile>> files,
                    std::vector<std::string> warnings);

  [[nodiscard]] std::vector<Entry>::const_iterator LowerBound(absl::string_view name) const;
  [[nodiscard]] const Entry* FindEntry(absl::string_view name) const;
  [[nodiscard]] absl::Status NotFound(absl::string_view name) const;

  std::string dir_;
  FileDescriptor folder_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<std::string> warnings_;
  std::vector<Entry> entries_;  // ascending by name
};

}  // namespace switchyard
