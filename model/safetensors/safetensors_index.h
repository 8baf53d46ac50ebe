// model.safetensors.index.json: which shard of a checkpoint holds which tensor.
//
//   {"metadata": {"total_size": 1234}, "weight_map": {"lm_head.weight": "model-00001-of-00002...",
//   ...}}
//
// Shards must be bare names, so that an index cannot point out of its folder. Source of the format:
// Hugging Face transformers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace switchyard {

// The weight_map as two lists, so that each file name is stored once.
struct SafetensorsIndex {
  struct Entry {
    std::string tensor;
    std::uint32_t file = 0;  // index into `files`

    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<std::string> files;            // bare names, ascending, each used
  std::vector<Entry> entries;                // ascending by tensor, each tensor once
  std::optional<std::uint64_t> total_bytes;  // metadata.total_size
};

// Far above real checkpoints, which have some hundred thousand tensors in some hundred files.
struct SafetensorsIndexLimits {
  std::size_t entries_max = 2'000'000;
  std::size_t files_max = 4'096;
};

// `path` is for errors. Errors: kDataLoss (CHECKPOINT), kinds JSON_ERROR, INDEX_INVALID,
// DUPLICATE_KEY and UNSAFE_FILE_NAME (a name with '/', "." or "..", or one that does not end in
// ".safetensors"). Memory is a small multiple of `json`. Thread-safe.
absl::StatusOr<SafetensorsIndex> ParseSafetensorsIndex(absl::string_view json,
                                                       const std::string& path,
                                                       const SafetensorsIndexLimits& limits = {});

}  // namespace switchyard
