#include "worker/device/cpu/packing.h"

#include <algorithm>
#include <cstring>

namespace switchyard {
namespace {

Bf16 WeightAt(const PanelSource& source, std::int64_t column, std::int64_t k) {
  const std::int64_t output = source.first + column;
  if (output >= source.outputs || k >= source.k) return 0;
  return source.matrix[output * source.k + k];
}

}  // namespace

void PackLanesPanel(const PanelSource& low, const PanelSource& high, std::byte* out) {
  for (std::int64_t k = 0; k < low.k; ++k) {
    std::uint32_t line[kPanelColumns];
    for (std::int64_t j = 0; j < kPanelColumns; ++j) {
      line[j] = WeightAt(low, j, k) | (static_cast<std::uint32_t>(WeightAt(high, j, k)) << 16);
    }
    std::memcpy(out + k * kLineBytes, line, sizeof(line));
  }
}

void PackTileColumn(const PanelSource& source, std::int64_t stride, std::byte* out) {
  for (std::int64_t block = 0; block < CeilDiv(source.k, kTileK); ++block) {
    Bf16 tile[kTileBytes / 2];
    for (std::int64_t column = 0; column < kPanelColumns; ++column) {
      for (std::int64_t k = 0; k < kTileK; ++k) {
        tile[(k / 2) * kTileK + column * 2 + k % 2] = WeightAt(source, column, block * kTileK + k);
      }
    }
    std::memcpy(out + block * stride, tile, sizeof(tile));
  }
}

std::int64_t LanesBytes(const KernelDims& dims) {
  return (CeilDiv(dims.intermediate, kPanelColumns) * dims.hidden +
          CeilDiv(dims.hidden, kDownPanelColumns) * dims.intermediate) *
         kLineBytes;
}

void PackLanes(const KernelDims& dims, const KernelWeights& weights, std::byte* out) {
  const std::int64_t hidden = dims.hidden;
  const std::int64_t intermediate = dims.intermediate;
  for (std::int64_t first = 0; first < intermediate; first += kPanelColumns) {
    PackLanesPanel({weights.gate, intermediate, hidden, first},
                   {weights.up, intermediate, hidden, first}, out);
    out += hidden * kLineBytes;
  }
  for (std::int64_t first = 0; first < hidden; first += kDownPanelColumns) {
    PackLanesPanel({weights.down, hidden, intermediate, first},
                   {weights.down, hidden, intermediate, first + kPanelColumns}, out);
    out += intermediate * kLineBytes;
  }
}

std::int64_t TilesBytes(const KernelDims& dims) {
  const std::int64_t gate_up =
      CeilDiv(dims.intermediate, kPanelColumns) * CeilDiv(dims.hidden, kTileK);
  const std::int64_t down =
      CeilDiv(dims.hidden, kDownPanelColumns) * CeilDiv(dims.intermediate, kTileK);
  return (gate_up + down) * 2 * kTileBytes;
}

void PackTiles(const KernelDims& dims, const KernelWeights& weights, std::byte* out) {
  const std::int64_t hidden = dims.hidden;
  const std::int64_t intermediate = dims.intermediate;
  constexpr std::int64_t kStride = 2 * kTileBytes;
  for (std::int64_t first = 0; first < intermediate; first += kPanelColumns) {
    PackTileColumn({weights.gate, intermediate, hidden, first}, kStride, out);
    PackTileColumn({weights.up, intermediate, hidden, first}, kStride, out + kTileBytes);
    out += CeilDiv(hidden, kTileK) * kStride;
  }
  for (std::int64_t first = 0; first < hidden; first += kDownPanelColumns) {
    PackTileColumn({weights.down, hidden, intermediate, first}, kStride, out);
    PackTileColumn({weights.down, hidden, intermediate, first + kPanelColumns}, kStride,
                   out + kTileBytes);
    out += CeilDiv(intermediate, kTileK) * kStride;
  }
}

}  // namespace switchyard
