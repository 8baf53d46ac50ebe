// The scratch of the families whose rows share the reading of a panel: x, then h, both FP32 in
// blocks of up to kRows rows; within a block [k][row], so that the values a step broadcasts lie
// beside each other.
//
// Everything is forced inline, so that no copy of it compiled for a newer instruction set can be
// linked into code for an older one.
#pragma once

#include <cstdint>

#include "worker/device/cpu/kernel/force_inline.h"
#include "worker/device/cpu/kernel/kernel_family.h"
#include "worker/device/cpu/kernel/packing.h"

namespace switchyard {

struct RowBlock {
  std::int64_t first = 0;  // row
  std::int64_t rows = 0;   // 1 to kRows
  float* x = nullptr;      // [hidden][rows]
  float* h = nullptr;      // [intermediate][rows]
};

// The layout of a family of panels of lanes; `rows_per_call` is a multiple of the block's rows.
SY_FORCE_INLINE KernelLayout LayoutOfRowBlocks(const KernelDims& dims, std::int64_t rows_per_call) {
  return {.packed_bytes = LanesBytes(dims),
          .scratch_bytes = rows_per_call * (dims.hidden + dims.intermediate) * 4,
          .rows_per_call = rows_per_call,
          .gate_up_panels = CeilDiv(dims.intermediate, kPanelColumns),
          .down_panels = CeilDiv(dims.hidden, kDownPanelColumns)};
}

// `first` is a multiple of kRows.
template <std::int64_t kRows>
SY_FORCE_INLINE RowBlock RowBlockAt(const KernelCall& call, std::int64_t first) {
  float* x = reinterpret_cast<float*>(call.scratch);
  float* h = x + call.row_count * call.dims.hidden;
  const std::int64_t left = call.row_count - first;
  return {.first = first,
          .rows = left < kRows ? left : kRows,
          .x = x + first * call.dims.hidden,
          .h = h + first * call.dims.intermediate};
}

// A BF16 number is the upper half of an FP32 number.
SY_FORCE_INLINE void StoreAsFloat(Bf16 value, float* out) {
  const std::uint32_t bits = static_cast<std::uint32_t>(value) << 16;
  __builtin_memcpy(out, &bits, sizeof(bits));
}

// KernelFamily::load_rows.
template <std::int64_t kRows>
SY_FORCE_INLINE void LoadRowBlocks(const KernelCall& call) {
  for (std::int64_t first = 0; first < call.row_count; first += kRows) {
    const RowBlock block = RowBlockAt<kRows>(call, first);
    for (std::int64_t row = 0; row < block.rows; ++row) {
      const Bf16* in = call.rows[first + row];
      for (std::int64_t k = 0; k < call.dims.hidden; ++k) {
        StoreAsFloat(in[k], block.x + k * block.rows + row);
      }
    }
  }
}

// KernelFamily::store_h.
template <std::int64_t kRows>
SY_FORCE_INLINE void StoreHOfRow(const KernelCall& call, std::int64_t row, const Bf16* in) {
  const RowBlock block = RowBlockAt<kRows>(call, row / kRows * kRows);
  float* h = block.h + row % kRows;
  for (std::int64_t i = 0; i < call.dims.intermediate; ++i) {
    StoreAsFloat(in[i], h + i * block.rows);
  }
}

}  // namespace switchyard
