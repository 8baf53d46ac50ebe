// Family scalar: the definition in double, one multiplication at a time. For tests and the
// self-test of the others; slow.
#include <cmath>
#include <cstring>

#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/kernel/packing.h"

namespace switchyard {
namespace {

constexpr std::int64_t kRowsPerCall = 16;

bool Usable(const CpuFeatures& /*cpu*/) { return true; }

// Weights stay as they are: gate, up, down. Scratch is h, [row, intermediate] of double.
KernelLayout Layout(const KernelDims& dims) {
  return {.packed_bytes = 3 * dims.hidden * dims.intermediate * 2,
          .scratch_bytes = kRowsPerCall * dims.intermediate * 8,
          .rows_per_call = kRowsPerCall,
          .gate_up_panels = dims.intermediate,
          .down_panels = dims.hidden};
}

void Pack(const KernelDims& dims, const KernelWeights& weights, std::byte* out) {
  const auto bytes = static_cast<std::size_t>(dims.hidden * dims.intermediate * 2);
  std::memcpy(out, weights.gate, bytes);
  std::memcpy(out + bytes, weights.up, bytes);
  std::memcpy(out + 2 * bytes, weights.down, bytes);
}

void LoadRows(const KernelCall& /*call*/) {}

double ValueOf(double x) { return x; }
double ValueOf(float x) { return static_cast<double>(x); }
double ValueOf(Bf16 x) { return static_cast<double>(Bf16ToFloat(x)); }

// Output `n` of the matrix whose scales are `scales`.
struct RowScales {
  const KernelScales& scales;
  std::int64_t n = 0;
};

template <typename X>
double Dot(const X* x, const Bf16* w, std::int64_t count, const RowScales& row) {
  const std::int64_t lane = row.n % kPanelColumns;
  const auto [at, width] = ScalesFrom(row.scales, row.n - lane, count);
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    const double scale =
        at == nullptr ? 1.0 : ValueOf(at[k / kScaleBlock * width + (width == 1 ? 0 : lane)]);
    sum += ValueOf(x[k]) * ValueOf(w[k]) * scale;
  }
  return sum;
}

void GateUp(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  const auto [hidden, intermediate] = call.dims;
  const auto* gate = reinterpret_cast<const Bf16*>(call.weights);
  const Bf16* up = gate + hidden * intermediate;
  auto* h = reinterpret_cast<double*>(call.scratch);
  for (std::int64_t row = 0; row < call.row_count; ++row) {
    for (std::int64_t i = begin; i < end; ++i) {
      double g = Dot(call.rows[row], gate + i * hidden, hidden, {call.blocks.gate, i});
      double u = Dot(call.rows[row], up + i * hidden, hidden, {call.blocks.up, i});
      if (const KernelAffine* affine = call.affine; affine != nullptr) {
        g = g * ValueOf(affine->gate_scale[i]) + ValueOf(affine->gate_bias[i]);
        u = u * ValueOf(affine->up_scale[i]) + ValueOf(affine->up_bias[i]);
      }
      h[row * intermediate + i] = g / (1.0 + std::exp(-g)) * u;
    }
  }
}

void Down(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  const auto [hidden, intermediate] = call.dims;
  const Bf16* down = reinterpret_cast<const Bf16*>(call.weights) + 2 * hidden * intermediate;
  const auto* h = reinterpret_cast<const double*>(call.scratch);
  for (std::int64_t row = 0; row < call.row_count; ++row) {
    for (std::int64_t n = begin; n < end; ++n) {
      call.out[row * hidden + n] = static_cast<float>(Dot(
          h + row * intermediate, down + n * intermediate, intermediate, {call.blocks.down, n}));
    }
  }
}

void LoadH(const KernelCall& call, std::int64_t row, Bf16* out) {
  const std::int64_t intermediate = call.dims.intermediate;
  const auto* h = reinterpret_cast<const double*>(call.scratch) + row * intermediate;
  for (std::int64_t i = 0; i < intermediate; ++i) out[i] = FloatToBf16(static_cast<float>(h[i]));
}

void StoreH(const KernelCall& call, std::int64_t row, const Bf16* in) {
  const std::int64_t intermediate = call.dims.intermediate;
  auto* h = reinterpret_cast<double*>(call.scratch) + row * intermediate;
  for (std::int64_t i = 0; i < intermediate; ++i) h[i] = static_cast<double>(Bf16ToFloat(in[i]));
}

}  // namespace

constinit const KernelFamily kScalarFamily = {.name = "scalar",
                                              .usable = Usable,
                                              .layout = Layout,
                                              .pack = Pack,
                                              .load_rows = LoadRows,
                                              .gate_up = GateUp,
                                              .down = Down,
                                              .load_h = LoadH,
                                              .store_h = StoreH};

}  // namespace switchyard
