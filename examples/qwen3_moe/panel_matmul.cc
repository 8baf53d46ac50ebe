#include "examples/qwen3_moe/panel_matmul.h"

#include <algorithm>
#include <cstring>

namespace switchyard::qwen3_moe {
namespace {

// Registers of the three instruction sets as GCC vector types, so that one template serves all
// three without intrinsics.
using Vector16 [[gnu::vector_size(64), gnu::may_alias]] = float;
using Vector8 [[gnu::vector_size(32), gnu::may_alias]] = float;
using Vector4 [[gnu::vector_size(16), gnu::may_alias]] = float;

// Computes kRows x kPanels panels; the sums stay in registers over the whole inner loop. Always
// inlined, so that each caller below compiles it for its own instruction set.
template <typename Vector, int kRows, int kPanels>
[[gnu::always_inline]] inline void Tile(const PanelMatMul& p, std::size_t row, std::size_t panel) {
  constexpr int kLanes = sizeof(Vector) / sizeof(float);
  constexpr int kParts = static_cast<int>(kPanelWidth) / kLanes;  // vectors in a panel
  Vector sum[kRows][kPanels * kParts] = {};
  const float* x = p.x + row * p.x_stride;
  const Panel* w = p.w + panel * p.panel_stride;
  for (std::size_t i = 0; i < p.inner; ++i) {
    for (int v = 0; v < kPanels * kParts; ++v) {
      const float* lanes = w[static_cast<std::size_t>(v / kParts) * p.panel_stride + i].lane;
      const Vector b = *reinterpret_cast<const Vector*>(lanes + v % kParts * kLanes);
      for (int r = 0; r < kRows; ++r) {
        sum[r][v] += x[static_cast<std::size_t>(r) * p.x_stride + i] * b;
      }
    }
  }
  const std::size_t first = panel * kPanelWidth;
  const std::size_t width = std::min(kPanels * kPanelWidth, p.columns - first);
  for (int r = 0; r < kRows; ++r) {
    float* out = p.y + (row + static_cast<std::size_t>(r)) * p.y_stride + first;
    // Two calls of memcpy, because the one with a constant size compiles to plain stores.
    if (width == kPanels * kPanelWidth) {
      std::memcpy(out, sum[r], sizeof(sum[r]));
    } else {
      std::memcpy(out, sum[r], width * sizeof(float));
    }
  }
}

template <typename Vector, int kRows, int kPanels>
[[gnu::always_inline]] inline void AllRows(const PanelMatMul& p, std::size_t panel) {
  std::size_t row = 0;
  for (; row + kRows <= p.rows; row += kRows) Tile<Vector, kRows, kPanels>(p, row, panel);
  for (; row < p.rows; ++row) Tile<Vector, 1, kPanels>(p, row, panel);
}

// kSinglePanels: panels per tile for a single row. More of them give enough independent sums to
// hide the latency of the multiply-add.
template <typename Vector, int kRows, int kPanels, int kSinglePanels>
[[gnu::always_inline]] inline void MultiplyWith(const PanelMatMul& p) {
  const std::size_t panels = PanelsFor(p.columns);
  std::size_t panel = 0;
  if (p.rows == 1) {
    for (; panel + kSinglePanels <= panels; panel += kSinglePanels) {
      Tile<Vector, 1, kSinglePanels>(p, 0, panel);
    }
    for (; panel < panels; ++panel) Tile<Vector, 1, 1>(p, 0, panel);
    return;
  }
  // Panel by panel and then all rows, so that a panel is read from memory once.
  for (; panel + kPanels <= panels; panel += kPanels) AllRows<Vector, kRows, kPanels>(p, panel);
  for (; panel < panels; ++panel) AllRows<Vector, kRows, 1>(p, panel);
}

// Tile sizes are chosen so that the sums fit into the registers of each instruction set.
#if defined(__x86_64__)
[[gnu::target("avx512f,fma")]] void MultiplyAvx512(const PanelMatMul& p) {
  MultiplyWith<Vector16, 4, 2, 8>(p);
}
[[gnu::target("avx2,fma")]] void MultiplyAvx2(const PanelMatMul& p) {
  MultiplyWith<Vector8, 4, 1, 4>(p);
}
#endif
void MultiplyPortable(const PanelMatMul& p) { MultiplyWith<Vector4, 2, 1, 2>(p); }

}  // namespace

std::vector<MatMulKernel> UsableMatMulKernels() {
  std::vector<MatMulKernel> usable;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma")) {
    usable.push_back({"avx512", &MultiplyAvx512});
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    usable.push_back({"avx2", &MultiplyAvx2});
  }
#endif
  usable.push_back({"portable", &MultiplyPortable});
  return usable;
}

void Multiply(const PanelMatMul& product) {
  // Chosen once: the CPU does not change while the process runs.
  static const MatMulKernel kernel = UsableMatMulKernels().front();
  kernel.run(product);
}

PackedMatrix PackedMatrix::Pack(std::span<const float> values, std::size_t columns,
                                std::size_t inner) {
  PackedMatrix packed;
  packed.columns_ = columns;
  packed.inner_ = inner;
  // Unused lanes of the last panel stay zero, so they cannot produce NaN or slow subnormals.
  packed.panels_.assign(PanelsFor(columns) * inner, Panel{});
  for (std::size_t c = 0; c < columns; ++c) {
    for (std::size_t i = 0; i < inner; ++i) {
      packed.panels_[(c / kPanelWidth) * inner + i].lane[c % kPanelWidth] = values[c * inner + i];
    }
  }
  return packed;
}

void PackedMatrix::Apply(const float* x, std::size_t rows, float* y) const {
  Multiply({.x = x,
            .x_stride = inner_,
            .rows = rows,
            .w = panels_.data(),
            .panel_stride = inner_,
            .inner = inner_,
            .columns = columns_,
            .y = y,
            .y_stride = columns_});
}

}  // namespace switchyard::qwen3_moe
