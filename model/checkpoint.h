// A checkpoint folder in the Hugging Face layout: config.json and the safetensors files.
//
//   config.json
//   model.safetensors                  one file, or
//   model.safetensors.index.json       weight_map: tensor -> shard; shards beside it
//
// With an index, index and shards must agree: every listed tensor is in its shard, no shard holds
// another, and the bytes add up to metadata.total_size where that is given. Files are taken from
// the folder itself, never through symbolic links. Immutable after Open; all calls are thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "model/model_config.h"
#include "model/safetensors.h"

namespace switchyard {

class Checkpoint {
 public:
  // Reads config and headers, no tensor. Keeps one descriptor for each file open.
  // Errors: (CHECKPOINT) with the kinds of checkpoint_error.h; those of ParseModelConfig.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& dir,
                                                          const SafetensorsLimits& limits = {});

  // nullptr when there is no such tensor. O(log n). Lives as long as the checkpoint.
  [[nodiscard]] const TensorInfo* Find(absl::string_view name) const;
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

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const std::string& dir() const { return dir_; }

 private:
  struct Entry {
    const TensorInfo* tensor = nullptr;
    const SafetensorsFile* file = nullptr;
  };

  Checkpoint(std::string dir, ModelConfig config,
             std::vector<std::unique_ptr<SafetensorsFile>> files);

  [[nodiscard]] const Entry* FindEntry(absl::string_view name) const;
  [[nodiscard]] absl::Status NotFound(absl::string_view name) const;

  const std::string dir_;
  const ModelConfig config_;
  const std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<Entry> entries_;  // ascending by name
};

}  // namespace switchyard
