// FP32 matrix products with weights packed in panels. The decoder uses this kernel for all
// products: projections, router, attention scores and sums, experts of the reference MoE.
//
// A panel has 16 output columns of one inner index. Each sum has its own lane and runs over the
// inner index in ascending order, so an output only depends on its row of x and the weights, not on
// the number of rows. Therefore a prompt gives the same bits whole, in chunks, or token by token.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "absl/strings/string_view.h"

namespace switchyard::qwen3_moe {

// The widest vector unit (AVX-512) has 16 lanes; narrower ones use several registers for a panel.
inline constexpr std::size_t kPanelWidth = 16;

// 64-byte alignment lets every instruction set load a panel with aligned loads.
struct alignas(64) Panel {
  float lane[kPanelWidth];
};

// The number of panels for `columns`, rounded up.
inline constexpr std::size_t PanelsFor(std::size_t columns) {
  return (columns + kPanelWidth - 1) / kPanelWidth;
}

// Describes one product. All pointers must stay valid during the call.
// y[r, c] = sum over i of x[r, i] * w(c, i), with w(c, i) in lane c % 16 of
// w[(c / 16) * panel_stride + i]. Lanes beyond `columns` are computed and not stored.
struct PanelMatMul {
  const float* x = nullptr;
  std::size_t x_stride = 0;  // floats from row to row
  std::size_t rows = 0;
  const Panel* w = nullptr;
  std::size_t panel_stride = 0;  // panels from one group of 16 columns to the next; >= inner
  std::size_t inner = 0;
  std::size_t columns = 0;
  float* y = nullptr;  // does not overlap x or w
  std::size_t y_stride = 0;
};

// Uses the widest vector unit of this CPU. Does not allocate; thread-safe.
void Multiply(const PanelMatMul& product);

// All implementations that this CPU can run, widest first. For tests, which compare them.
struct MatMulKernel {
  absl::string_view name;
  void (*run)(const PanelMatMul& product);
};
std::vector<MatMulKernel> UsableMatMulKernels();

// A packed weight of [columns, inner], the layout of a checkpoint. Immutable after Pack.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  // `values` is [columns, inner], row-major.
  static PackedMatrix Pack(std::span<const float> values, std::size_t columns, std::size_t inner);

  [[nodiscard]] std::size_t columns() const { return columns_; }
  [[nodiscard]] std::size_t inner() const { return inner_; }
  // y [rows, columns] = x [rows, inner] * transpose of the weight. x and y are dense. Thread-safe.
  void Apply(const float* x, std::size_t rows, float* y) const;

 private:
  std::size_t columns_ = 0;
  std::size_t inner_ = 0;
  // PanelsFor(columns) groups of `inner` panels.
  std::vector<Panel> panels_;
};

}  // namespace switchyard::qwen3_moe
