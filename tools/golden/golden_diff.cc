#include "tools/golden/golden_diff.h"

#include <limits>
#include <map>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/format/calc_diff.h"
#include "examples/qwen3_moe/experts_call.h"

namespace switchyard::qwen3_moe {
namespace {

struct LayerSums {
  std::size_t rows = 0;
  DiffSums sums;
};

absl::Status AddBlock(const Decoder& decoder, const GoldenBlockData& data, LayerId layer,
                      const MoePath& moe, DiffSums& sums) {
  const Routing routing = decoder.router(layer).Route(data.in);
  // NaN, so that an element that is never written shows in the result.
  std::vector<float> y(data.out.size(), std::numeric_limits<float>::quiet_NaN());
  SY_RETURN_IF_ERROR(RunExperts({.layer = layer, .x = data.in, .routing = routing, .y = y}, moe));
  sums.Add(y, data.out);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GoldenDiff> MeasureGoldenDiff(const Decoder& decoder, const GoldenFile& golden,
                                             const MoePath& moe) {
  GoldenDiff result;
  // Sums over all texts, so that the figure weighs positions and not texts equally.
  DiffSums logits_sums;
  for (const GoldenText& text : golden.texts()) {
    if (text.logits.empty()) continue;
    KvCache cache = decoder.MakeCache(text.ids.size());
    SY_ASSIGN_OR_RETURN(
        const std::vector<float> logits,
        decoder.Forward(cache, {.tokens = text.ids, .logits = LogitsOf::kAll}, moe));
    logits_sums.Add(logits, text.logits);
    result.positions += text.ids.size();
  }
  result.logits = logits_sums.Diff();
  std::map<LayerId, LayerSums> layers;
  for (const GoldenBlock& block : golden.blocks()) {
    // Blocks are read one by one, so that only one is in memory.
    SY_ASSIGN_OR_RETURN(const GoldenBlockData data, golden.ReadBlock(block));
    LayerSums& layer = layers[block.layer];
    SY_RETURN_IF_ERROR(AddBlock(decoder, data, block.layer, moe, layer.sums));
    layer.rows += block.rows;
  }
  for (const auto& [layer, of] : layers) {
    result.layers.push_back({.layer = layer, .rows = of.rows, .diff = of.sums.Diff()});
  }
  if (result.positions > 0 || !result.layers.empty()) return result;
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   "the golden file has neither logits nor MoE blocks; use another one");
}

}  // namespace switchyard::qwen3_moe
