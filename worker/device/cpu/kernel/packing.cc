#include "worker/device/cpu/kernel/packing.h"

#include <algorithm>
#include <cstring>

namespace switchyard {
namespace {

// A block of sixteen outputs by 32 k, row by row; zeros beyond the matrix.
struct Block {
  Bf16 at[kPanelColumns][kTileK];
};

void Read(const PanelSource& source, std::int64_t k, Block* block) {
  const std::int64_t outputs = std::min(source.outputs - source.first, kPanelColumns);
  const std::int64_t width = std::min(source.k - k, kTileK);
  // Only a block at the border has padding; clearing every block would double the writes.
  if (outputs < kPanelColumns || width < kTileK) *block = {};
  for (std::int64_t column = 0; column < outputs; ++column) {
    std::memcpy(block->at[column], source.matrix + (source.first + column) * source.k + k,
                static_cast<std::size_t>(width) * sizeof(Bf16));
  }
}

}  // namespace

void PackLanesPanel(const PanelSource& low, const PanelSource& high, std::byte* out) {
  Block lows = {};
  Block highs = {};
  for (std::int64_t first = 0; first < low.k; first += kTileK) {
    Read(low, first, &lows);
    Read(high, first, &highs);
    const std::int64_t width = std::min(low.k - first, kTileK);
    for (std::int64_t k = 0; k < width; ++k, out += kLineBytes) {
      std::uint32_t line[kPanelColumns];
      for (std::int64_t j = 0; j < kPanelColumns; ++j) {
        line[j] = lows.at[j][k] | (static_cast<std::uint32_t>(highs.at[j][k]) << 16);
      }
      std::memcpy(out, line, sizeof(line));
    }
  }
}

void PackTileColumn(const PanelSource& source, std::int64_t stride, std::byte* out) {
  constexpr std::int64_t kPairs = kTileK / 2;
  Block block = {};
  for (std::int64_t first = 0; first < source.k; first += kTileK, out += stride) {
    Read(source, first, &block);
    std::uint32_t tile[kPairs][kPanelColumns];
    for (std::int64_t column = 0; column < kPanelColumns; ++column) {
      std::uint32_t pairs[kPairs];
      // Two neighboring k are one 32-bit word, the unit of a BF16 tile product.
      std::memcpy(pairs, block.at[column], sizeof(pairs));
      for (std::int64_t pair = 0; pair < kPairs; ++pair) tile[pair][column] = pairs[pair];
    }
    std::memcpy(out, tile, sizeof(tile));
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
    // Gate below up in each line: one load gives both factors of an element of h.
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
