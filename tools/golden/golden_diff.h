// How far a model, with these routed experts, is from a golden file: one figure for its logits and
// one for each MoE layer. A measurement, where verify.h is a verdict.
#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"

#include "core/ids.h"
#include "examples/qwen3_moe/decoder.h"
#include "examples/qwen3_moe/moe_call.h"
#include "tools/golden/golden_file.h"

namespace switchyard::qwen3_moe {

struct LayerDiff {
  LayerId layer;
  std::size_t rows = 0;  // of all blocks of the layer
  double diff = 0;       // calc_diff, pooled over them
};

struct GoldenDiff {
  std::size_t positions = 0;      // with golden logits
  double logits = 0;              // calc_diff, pooled over them
  std::vector<LayerDiff> layers;  // ascending
};

// Texts with logits are fed whole, in a context each; blocks are routed here and sent to `moe`.
// Errors: those of GoldenFile::ReadBlock, Decoder::Forward and RunExperts; kInvalidArgument
// (BAD_REQUEST) for a file with neither logits nor blocks.
absl::StatusOr<GoldenDiff> MeasureGoldenDiff(const Decoder& decoder, const GoldenFile& golden,
                                             const MoePath& moe);

}  // namespace switchyard::qwen3_moe
