// Writes a quantized checkpoint from a BF16 one.
//
// The new folder has the tensors of checkpoint_plan.h, config.json and the file that
// config_writer.h puts beside it, and the tokenizer's JSON and text files (kTokenizerFiles). Other
// files of the folder are not copied; the summary names them. One expert is in memory at a time.
// Before the new folder gets its name it is read back with this project's readers: quant config,
// experts' names, layouts, dtypes and shapes.
//
// Equal inputs give equal bytes. Not thread-safe. Cost: some 100 ns for each weight, on one
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "model/quant/config/amax_file.h"
#include "quantize/scheme_table.h"

namespace switchyard {

inline constexpr std::array kTokenizerFiles{"tokenizer.json",
                                            "tokenizer_config.json",
                                            "special_tokens_map.json",
                                            "added_tokens.json",
                                            "vocab.json",
                                            "merges.txt",
                                            "vocab.txt"};

struct QuantizeOptions {
  const WriteScheme* scheme = nullptr;
  std::string in;
  std::string out;
  std::optional<AmaxTable> calibration;
  std::vector<std::string> exclude = {};  // checkpoint_plan.h
  std::vector<std::int32_t> keep_bf16_layers = {};
  std::uint64_t shard_bytes = 5'000'000'000;
  bool force = false;  // replace an older checkpoint under `out`
};

struct QuantizeProgress {
  std::uint64_t tensors = 0;  // written
  std::uint64_t tensors_all = 0;
  std::uint64_t bytes = 0;  // of tensors, written
  std::uint64_t bytes_all = 0;
};
// Called after each tensor; an error stops the run, which then leaves nothing behind.
using QuantizeObserver = std::function<absl::Status(const QuantizeProgress&)>;

struct QuantizeSummary {
  const WriteScheme* scheme = nullptr;
  std::string out;
  std::vector<std::int32_t> quantized_layers;
  std::vector<std::int32_t> bf16_layers;
  std::int64_t experts = 0;  // quantized, over all layers
  std::uint64_t tensors = 0;
  std::uint64_t bytes_before = 0;  // of tensors
  std::uint64_t bytes_after = 0;
  std::array<double, 3> diff_max{};   // by Projection: largest calc_diff of an expert's weights
  std::vector<std::string> files;     // written, with the tensors' files
  std::vector<std::string> left_out;  // files of `in` that were not copied
  std::vector<std::string> warnings;
};

// Errors, before anything is written: those of CheckpointTensors::Open, PlanCheckpoint, InputAmaxOf
// and OutputFolder::Create; kInvalidArgument (BAD_CONFIG): a scheme with static scales and no
// calibration, `in` and `out` that are one folder, a checkpoint that is already quantized. Later:
// those of Encode, SafetensorsWriter and OutputFolder, and the status that `observer` returned.
absl::StatusOr<QuantizeSummary> Quantize(const QuantizeOptions& options,
                                         const QuantizeObserver& observer = nullptr);

}  // namespace switchyard
