// Weight layouts: the checkpoint's row-major [outputs, k] matrices cut into panels of outputs, so
// that a kernel reads one contiguous stream from the first panel of gate/up to the last of down.
//
// Two layouts. Outputs and k beyond the matrix are zeros.
//   lanes  a 64-byte line for each k; 32-bit lane j of it holds two BF16 weights, the low half for
//          one output, the high half for another: FP32 by a shift and a mask.
//   tiles  1 KiB AMX B tiles for each block of 32 k; row p, column n holds the pair k = 2p, 2p + 1
//          of output n.
// A gate/up panel pairs 16 gate outputs with the same 16 up outputs; a down panel is 32 outputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/format/weight_scales.h"
#include "worker/device/cpu/kernel/kernel_family.h"

namespace switchyard {

constexpr std::int64_t kPanelColumns = 16;      // gate (and up) outputs of a gate/up panel
constexpr std::int64_t kDownPanelColumns = 32;  // outputs of a down panel
constexpr std::int64_t kTileK = 32;             // k of one tile
constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kTileBytes = 1024;

constexpr std::int64_t CeilDiv(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step;
}
constexpr std::int64_t RoundUp(std::int64_t value, std::int64_t step) {
  return CeilDiv(value, step) * step;
}

// The scales of outputs [n, n + 16) along k, `width` for each 128 k; n is a multiple of 16. Null
// where there are none.
constexpr KernelScales ScalesFrom(const KernelScales& scales, std::int64_t n,
                                  std::int64_t k_count) {
  if (scales.at == nullptr) return {};
  const std::int64_t line = scales.width == 1 ? n / kScaleBlock : n / kPanelColumns;
  return {scales.at + line * ScaleBlocks(k_count) * scales.width, scales.width};
}

// Sixteen consecutive outputs of a row-major [outputs, k] matrix.
struct PanelSource {
  const Bf16* matrix = nullptr;
  std::int64_t outputs = 0;
  std::int64_t k = 0;
  std::int64_t first = 0;  // may be >= outputs: then all padding
};

// One lanes panel: `k` lines to `out`, `low` in the low halves and `high` in the high ones.
void PackLanesPanel(const PanelSource& low, const PanelSource& high, std::byte* out);
// One column of tiles: for each block of 32 k a tile, `stride` bytes after the one before.
void PackTileColumn(const PanelSource& source, std::int64_t stride, std::byte* out);

// A whole expert.
std::int64_t LanesBytes(const KernelDims& dims);
void PackLanes(const KernelDims& dims, const KernelWeights& weights, std::byte* out);
std::int64_t TilesBytes(const KernelDims& dims);
void PackTiles(const KernelDims& dims, const KernelWeights& weights, std::byte* out);

}  // namespace switchyard
