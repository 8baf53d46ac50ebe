// Family portable_fp32: plain C++ in loops of 16 lanes that a compiler turns into vectors. Weights
// in the lanes layout, FP32 multiplications and additions (no contraction), h kept in FP32.
#include <bit>
#include <cstring>

#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/kernel/packing.h"

namespace switchyard {
namespace {

constexpr std::int64_t kRowsPerCall = 64;
constexpr int kLanes = 16;

bool Usable(const CpuFeatures& /*cpu*/) { return true; }

// Scratch: x, [row, hidden], then h, [row, intermediate], both FP32.
KernelLayout Layout(const KernelDims& dims) {
  return {.packed_bytes = LanesBytes(dims),
          .scratch_bytes = kRowsPerCall * (dims.hidden + dims.intermediate) * 4,
          .rows_per_call = kRowsPerCall,
          .gate_up_panels = CeilDiv(dims.intermediate, kPanelColumns),
          .down_panels = CeilDiv(dims.hidden, kDownPanelColumns)};
}

float* XOf(const KernelCall& call) { return reinterpret_cast<float*>(call.scratch); }
float* HOf(const KernelCall& call) { return XOf(call) + call.row_count * call.dims.hidden; }

void LoadRows(const KernelCall& call) {
  float* x = XOf(call);
  for (std::int64_t row = 0; row < call.row_count; ++row) {
    const Bf16* in = call.rows[row];
    for (std::int64_t k = 0; k < call.dims.hidden; ++k) *x++ = Bf16ToFloat(in[k]);
  }
}

// Four lanes, of which every compiler of ours makes one register or four scalars. Left to loops of
// plain floats, g++ 12 vectorizes along k instead, and is eight times slower.
using Floats = float __attribute__((vector_size(16)));
using Words = std::uint32_t __attribute__((vector_size(16)));
constexpr int kGroups = kLanes / 4;

struct Sums {
  float low[kLanes];
  float high[kLanes];
};

// One row against one panel, k ascending.
inline Sums PanelSums(const float* x, const std::byte* panel, std::int64_t k_count) {
  Floats low[kGroups] = {};
  Floats high[kGroups] = {};
  const Words high_half = Words{} + 0xffff0000U;
  for (std::int64_t k = 0; k < k_count; ++k) {
    const auto* line = reinterpret_cast<const Words*>(panel + k * kLineBytes);
    // One value of x for all lanes: each output sums over k in ascending order, whatever its lane.
    const Floats value = Floats{} + x[k];
#pragma GCC unroll 4
    for (int group = 0; group < kGroups; ++group) {
      low[group] += value * std::bit_cast<Floats>(line[group] << 16);
      high[group] += value * std::bit_cast<Floats>(line[group] & high_half);
    }
  }
  Sums sums = {};
  std::memcpy(sums.low, low, sizeof(sums.low));
  std::memcpy(sums.high, high, sizeof(sums.high));
  return sums;
}

// Scales of a panel's low and high outputs; null: none.
struct PanelScales {
  KernelScales low{};
  KernelScales high{};
};

// sums += scale * block, of sixteen outputs; `at`: which 128 k these are.
inline void AddScaled(const float* block, const KernelScales& scales, std::int64_t at,
                      float* sums) {
  const float* scale = scales.at + at * scales.width;
  if (scales.width == 1) {
    for (int j = 0; j < kLanes; ++j) sums[j] += block[j] * *scale;
  } else {
    for (int j = 0; j < kLanes; ++j) sums[j] += block[j] * scale[j];
  }
}

// The same where each 128 k have a scale.
Sums ScaledPanelSums(const float* x, const std::byte* panel, std::int64_t k_count,
                     const PanelScales& scales) {
  Sums sums = {};
  for (std::int64_t first = 0; first < k_count; first += kScaleBlock) {
    const std::int64_t left = k_count - first;
    const Sums block =
        PanelSums(x + first, panel + first * kLineBytes, left < kScaleBlock ? left : kScaleBlock);
    AddScaled(block.low, scales.low, first / kScaleBlock, sums.low);
    AddScaled(block.high, scales.high, first / kScaleBlock, sums.high);
  }
  return sums;
}

// exp for -87 <= x <= 88, to about 2 ulp (coefficients of Cephes' expf); NaN stays NaN.
inline float Exp(float x) {
  constexpr float kRoundToInteger = 12582912.0F;  // 1.5 * 2^23: adding it drops the fraction
  const float shifted = x * 1.44269504F + kRoundToInteger;
  const float n = shifted - kRoundToInteger;
  const float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
  float p = 1.9875691500e-4F;
  p = p * r + 1.3981999507e-3F;
  p = p * r + 8.3334519073e-3F;
  p = p * r + 4.1665795894e-2F;
  p = p * r + 1.6666665459e-1F;
  p = p * r + 5.0000001201e-1F;
  p = p * (r * r) + r + 1.0F;
  const std::uint32_t exponent =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRoundToInteger) + 127U;
  return p * std::bit_cast<float>(exponent << 23);
}

inline float Silu(float x) {
  float negated = -x;
  negated = negated > 88.0F ? 88.0F : negated;  // Comparisons with NaN are false: it stays.
  negated = negated < -87.0F ? -87.0F : negated;
  return x / (1.0F + Exp(negated));
}

void ApplyAffine(const KernelAffine& affine, std::int64_t first, Sums* sums) {
  for (int j = 0; j < kLanes; ++j) {
    sums->low[j] = sums->low[j] * affine.gate_scale[first + j] + affine.gate_bias[first + j];
    sums->high[j] = sums->high[j] * affine.up_scale[first + j] + affine.up_bias[first + j];
  }
}

void GateUp(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  const auto [hidden, intermediate] = call.dims;
  for (std::int64_t panel = begin; panel < end; ++panel) {
    // A panel's weights are read once for all rows of the call, while they are in the cache.
    const std::byte* weights = call.weights + panel * hidden * kLineBytes;
    const std::int64_t first = panel * kPanelColumns;
    const std::int64_t columns = intermediate - first < kLanes ? intermediate - first : kLanes;
    const PanelScales scales = {.low = ScalesFrom(call.blocks.gate, first, hidden),
                                .high = ScalesFrom(call.blocks.up, first, hidden)};
    for (std::int64_t row = 0; row < call.row_count; ++row) {
      const float* x = XOf(call) + row * hidden;
      Sums sums = scales.low.at == nullptr ? PanelSums(x, weights, hidden)
                                           : ScaledPanelSums(x, weights, hidden, scales);
      if (call.affine != nullptr) ApplyAffine(*call.affine, first, &sums);
      float* h = HOf(call) + row * intermediate + first;
      // Lanes beyond the matrix are padding and are not stored.
      for (std::int64_t j = 0; j < columns; ++j) h[j] = Silu(sums.low[j]) * sums.high[j];
    }
  }
}

void Down(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  const auto [hidden, intermediate] = call.dims;
  const std::byte* down = call.weights + CeilDiv(intermediate, kPanelColumns) * hidden * kLineBytes;
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::byte* weights = down + panel * intermediate * kLineBytes;
    const std::int64_t first = panel * kDownPanelColumns;
    const PanelScales scales = {
        .low = ScalesFrom(call.blocks.down, first, intermediate),
        .high = ScalesFrom(call.blocks.down, first + kPanelColumns, intermediate)};
    for (std::int64_t row = 0; row < call.row_count; ++row) {
      const float* h = HOf(call) + row * intermediate;
      const Sums sums = scales.low.at == nullptr
                            ? PanelSums(h, weights, intermediate)
                            : ScaledPanelSums(h, weights, intermediate, scales);
      float* out = call.out + row * hidden;
      for (std::int64_t j = 0; j < kDownPanelColumns && first + j < hidden; ++j) {
        out[first + j] = j < kLanes ? sums.low[j] : sums.high[j - kLanes];
      }
    }
  }
}

void LoadH(const KernelCall& call, std::int64_t row, Bf16* out) {
  const std::int64_t intermediate = call.dims.intermediate;
  const float* h = HOf(call) + row * intermediate;
  for (std::int64_t i = 0; i < intermediate; ++i) out[i] = FloatToBf16(h[i]);
}

void StoreH(const KernelCall& call, std::int64_t row, const Bf16* in) {
  const std::int64_t intermediate = call.dims.intermediate;
  float* h = HOf(call) + row * intermediate;
  for (std::int64_t i = 0; i < intermediate; ++i) h[i] = Bf16ToFloat(in[i]);
}

}  // namespace

constinit const KernelFamily kPortableFamily = {.name = "portable_fp32",
                                                .usable = Usable,
                                                .layout = Layout,
                                                .pack = PackLanes,
                                                .load_rows = LoadRows,
                                                .gate_up = GateUp,
                                                .down = Down,
                                                .load_h = LoadH,
                                                .store_h = StoreH};

}  // namespace switchyard
