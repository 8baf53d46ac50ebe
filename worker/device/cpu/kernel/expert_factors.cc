#include "worker/device/cpu/kernel/expert_factors.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/base/status_macros.h"
#include "worker/device/cpu/kernel/packing.h"

namespace switchyard {
namespace {

bool HasAffine(const ExpertWeightsView& view) {
  for (const WeightScalesView* scales : {&view.gate_scales, &view.up_scales, &view.down_scales}) {
    if (scales->tensor != 1.0F || !scales->channels.empty()) return true;
  }
  return !view.gate_bias.empty() || !view.up_bias.empty() || !view.down_bias.empty();
}

// A matrix [outputs, k] whose scales along k a kernel is to read.
struct Scaled {
  const WeightScalesView& scales;
  std::int64_t outputs = 0;
  std::int64_t k = 0;

  [[nodiscard]] bool any() const { return !scales.blocks.empty() || !scales.groups.empty(); }
  [[nodiscard]] std::int64_t blocks() const { return ScaleBlocks(outputs) * ScaleBlocks(k); }
  // The padded values of a matrix that has scales, or whose partner has.
  [[nodiscard]] std::int64_t values() const {
    if (scales.groups.empty()) return RoundUp(blocks(), kPanelColumns);
    return RoundUp(outputs, kDownPanelColumns) * ScaleBlocks(k);
  }
};

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
  KernelScales WriteAlongK(const Scaled& of) {
    if (of.scales.groups.empty()) return {Write(of.scales.blocks, of.blocks(), 1), 1};
    // The matrix's other scales are in KernelAffine.
    const WeightScalesView along_k{.blocks = of.scales.blocks, .groups = of.scales.groups};
    const float* const begin = at_;
    const std::int64_t outputs = RoundUp(of.outputs, kDownPanelColumns);
    for (std::int64_t first = 0; first < outputs; first += kPanelColumns) {
      for (std::int64_t k = 0; k < of.k; k += kScaleBlock) {
        for (std::int64_t n = first; n < first + kPanelColumns; ++n) {
          *at_++ = n < of.outputs ? along_k.At(n, k, of.k) : 0.0F;
        }
      }
    }
    return {begin, kPanelColumns};
  }

 private:
  float* at_;
};

}  // namespace

absl::StatusOr<ExpertFactors> ExpertFactors::Pack(const KernelDims& dims,
                                                  const ExpertWeightsView& weights) {
  const auto [hidden, intermediate] = dims;
  const bool affine = HasAffine(weights);
  const Scaled gate{weights.gate_scales, intermediate, hidden};
  const Scaled up{weights.up_scales, intermediate, hidden};
  const Scaled down{weights.down_scales, hidden, intermediate};
  std::int64_t values = 0;
  if (affine) {
    values += 2 * (2 * RoundUp(intermediate, kPanelColumns) + RoundUp(hidden, kPanelColumns));
  }
  if (gate.any() || up.any()) values += gate.values() + up.values();
  if (down.any()) values += down.values();
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
  if (gate.any() || up.any()) {
    factors.blocks_.gate = writer.WriteAlongK(gate);
    factors.blocks_.up = writer.WriteAlongK(up);
  }
  if (down.any()) factors.blocks_.down = writer.WriteAlongK(down);
  return factors;
}

}  // namespace switchyard
