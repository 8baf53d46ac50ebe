// Measures the distance of a model with given routed experts from a golden file: one figure for its
// logits and one for each MoE layer. Unlike verify.h, it has no bounds and so never fails.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"

#include "core/ids.h"
#include "examples/qwen3_moe/decoder.h"
#include "examples/qwen3_moe/moe_call.h"
#include "tools/golden/golden_file.h"

namespace switchyard::qwen3_moe {

// The distance at one layer.
struct LayerDiff {
  LayerId layer;
  std::size_t rows = 0;  // of all blocks of the layer
  double diff = 0;       // calc_diff over all of them
};

// The distance of the whole model.
// Layers without blocks are not listed, so an empty list means that the file has no blocks.
struct GoldenDiff {
  std::size_t positions = 0;      // with golden logits
  double logits = 0;              // calc_diff over all of them
  std::vector<LayerDiff> layers;  // ascending
};

// `moe` is used for prompts and for blocks, so its max_tokens bounds each call.
// Feeds each text with logits in its own context, and routes each block and sends it to `moe`.
// Errors: those of GoldenFile::ReadBlock, Decoder::Forward and RunExperts; kInvalidArgument
// (BAD_REQUEST) for a file with neither logits nor blocks.
absl::StatusOr<GoldenDiff> MeasureGoldenDiff(const Decoder& decoder, const GoldenFile& golden,
                                             const MoePath& moe);

}  // namespace switchyard::qwen3_moe
