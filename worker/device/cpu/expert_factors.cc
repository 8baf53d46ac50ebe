#include "worker/device/cpu/expert_factors.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/status_macros.h"
#include "worker/device/cpu/packing.h"

namespace switchyard {
namespace {

bool HasAffine(const ExpertWeightsView& view) {
  for (const WeightScalesView* scales : {&view.gate_scales, &view.up_scales, &view.down_scales}) {
    if (scales->tensor != 1.0F || !scales->channels.empty()) return true;
  }
  return !view.gate_bias.empty() || !view.up_bias.empty() || !view.down_bias.empty();
}

// Hands out pieces of a buffer, one after the other, each of whole lines.
class Writer {
 public:
  explicit Writer(std::byte* at) : at_(reinterpret_cast<float*>(at)) {}

  // `values`, or as many of `value` where there are none, padded with zeros.
  const float* Write(std::span<const float> values, std::int64_t count, float value) {
    float* const begin = at_;
    at_ = values.empty() ? std::fill_n(at_, count, value)
                         : std::copy(values.begin(), values.end(), at_);
    at_ = std::fill_n(at_, RoundUp(count, kPanelColumns) - count, 0.0F);
    return begin;
  }
  const float* WriteScales(const WeightScalesView& scales, std::int64_t outputs) {
    float* const begin = at_;
    (void)Write(scales.channels, outputs, 1.0F);
    for (std::int64_t n = 0; n < outputs; ++n) begin[n] *= scales.tensor;
    return begin;
  }

 private:
  float* at_;
};

}  // namespace

absl::StatusOr<ExpertFactors> ExpertFactors::Pack(const KernelDims& dims,
                                                  const ExpertWeightsView& weights) {
  const auto [hidden, intermediate] = dims;
  const bool affine = HasAffine(weights);
  const bool gate_up_blocks =
      !weights.gate_scales.blocks.empty() || !weights.up_scales.blocks.empty();
  const bool down_blocks = !weights.down_scales.blocks.empty();
  const std::int64_t blocks = ScaleBlocks(hidden) * ScaleBlocks(intermediate);
  std::int64_t values = 0;
  if (affine) {
    values += 2 * (2 * RoundUp(intermediate, kPanelColumns) + RoundUp(hidden, kPanelColumns));
  }
  if (gate_up_blocks) values += 2 * RoundUp(blocks, kPanelColumns);
  if (down_blocks) values += RoundUp(blocks, kPanelColumns);
  ExpertFactors factors;
  if (values == 0) return factors;

  SY_ASSIGN_OR_RETURN(factors.memory_, AlignedBuffer::Allocate(values * 4));
  Writer writer(factors.memory_.data());
  if (affine) {
    KernelAffine& to = factors.affine_.emplace();
    to.gate_scale = writer.WriteScales(weights.gate_scales, intermediate);
    to.up_scale = writer.WriteScales(weights.up_scales, intermediate);
    to.down_scale = writer.WriteScales(weights.down_scales, hidden);
    to.gate_bias = writer.Write(weights.gate_bias, intermediate, 0);
    to.up_bias = writer.Write(weights.up_bias, intermediate, 0);
    to.down_bias = writer.Write(weights.down_bias, hidden, 0);
  }
  if (gate_up_blocks) {
    factors.blocks_.gate = writer.Write(weights.gate_scales.blocks, blocks, 1);
    factors.blocks_.up = writer.Write(weights.up_scales.blocks, blocks, 1);
  }
  if (down_blocks) factors.blocks_.down = writer.Write(weights.down_scales.blocks, blocks, 1);
  return factors;
}

}  // namespace switchyard
