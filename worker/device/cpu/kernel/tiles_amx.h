// Products of row tiles by a panel of weight tiles in AMX registers. Everything is forced inline;
// include it only from files compiled with -mamx-tile and -mamx-bf16.
//
// A tile register holds 16 rows of 64 bytes. One product takes 16 rows by 32 k of BF16 and 32 k by
// 16 outputs, and adds 16 by 16 FP32 sums.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cpu/kernel/packing.h"
#include "worker/device/cpu/kernel/vector_avx512.h"

namespace switchyard {

constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kTilePairBytes = 2 * kTileBytes;  // the two B tiles of a step along k
// One or two row tiles: read ahead of the stream, into L1.
constexpr std::int64_t kPrefetchBytes = 1024;

// Tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 weights.
SY_FORCE_INLINE void ConfigureTiles(std::int64_t tile_rows) {
  // The layout that LDTILECFG reads: palette 1 has eight tiles of at most 16 rows of 64 bytes.
  struct alignas(64) Config {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {};
  };
  Config config;
  for (int tile = 0; tile < 6; ++tile) config.rows[tile] = static_cast<std::uint8_t>(tile_rows);
  // Weight tiles are always full: packing pads them.
  config.rows[6] = config.rows[7] = kTileRows;
  // GCC 12 declares that LDTILECFG reads eight bytes and a tile load none, which is wrong for both.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// The memory to prefetch while a step along k runs.
struct TileAhead {
  const std::byte* from = nullptr;
  std::int64_t lines_per_step = 0;
};

// Where the operands of a pass begin. Row tiles of one block lie `tile_bytes` apart along k.
struct TileOperands {
  const std::byte* rows = nullptr;     // A tiles of the first row tile
  const std::byte* rows_2 = nullptr;   // and of the second, if there is one
  const std::byte* weights = nullptr;  // pairs of B tiles
  std::int64_t steps = 0;
  std::int64_t tile_bytes = 0;  // of an A tile
};

// One or two row tiles against a panel. Two share every weight tile that is loaded, which halves
// the loads of weights for each product.
struct TilePass {
  TileOperands in;
  TileAhead ahead;
  std::int64_t row_tiles = 0;
};

// A prefetch cannot fault, so `from` may run past the end of the weights.
SY_FORCE_INLINE void Fetch(TileAhead* ahead) {
  for (std::int64_t line = 0; line < ahead->lines_per_step; ++line) {
    _mm_prefetch(ahead->from, _MM_HINT_T0);
    ahead->from += kLineBytes;
  }
}

// Tiles 0 and 1: one row tile by two weight tiles. The second weight tile is loaded after the first
// product has started, so that the two overlap.
SY_FORCE_INLINE void MultiplyOne(const TileOperands& in, TileAhead ahead) {
  _tile_zero(0);
  _tile_zero(1);
  const std::byte* a = in.rows;
  const std::byte* b = in.weights;
  for (std::int64_t step = 0; step < in.steps; ++step) {
    Fetch(&ahead);
    _tile_loadd(4, a, kLineBytes);
    _tile_loadd(6, b, kLineBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileBytes, kLineBytes);
    _tile_dpbf16ps(1, 4, 7);
    a += in.tile_bytes;
    b += kTilePairBytes;
  }
}

// Tiles 0 to 3: two row tiles by two weight tiles.
SY_FORCE_INLINE void MultiplyTwo(const TileOperands& in, TileAhead ahead) {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  const std::byte* a = in.rows;
  const std::byte* a_2 = in.rows_2;
  const std::byte* b = in.weights;
  for (std::int64_t step = 0; step < in.steps; ++step) {
    Fetch(&ahead);
    _tile_loadd(4, a, kLineBytes);
    _tile_loadd(6, b, kLineBytes);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTileBytes, kLineBytes);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a_2, kLineBytes);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    a += in.tile_bytes;
    a_2 += in.tile_bytes;
    b += kTilePairBytes;
  }
}

// Branches once for a pass and not for a step. The sums stay in the tile registers.
SY_FORCE_INLINE void Multiply(const TilePass& pass) {
  if (pass.row_tiles == 1) {
    MultiplyOne(pass.in, pass.ahead);
  } else {
    MultiplyTwo(pass.in, pass.ahead);
  }
}

// The sums of up to two row tiles by two weight tiles, out of the tile registers: tile 2r + w is
// row tile r by weight tile w.
// A row of a tile is one line, hence the alignment.
struct alignas(64) TileSums {
  float tile[4][kTileRows][kPanelColumns];
};

// Stores only the tiles that a pass of `row_tiles` has filled.
SY_FORCE_INLINE void StoreTiles(std::int64_t row_tiles, TileSums* sums) {
  _tile_stored(0, sums->tile[0], kLineBytes);
  _tile_stored(1, sums->tile[1], kLineBytes);
  if (row_tiles < 2) return;
  _tile_stored(2, sums->tile[2], kLineBytes);
  _tile_stored(3, sums->tile[3], kLineBytes);
}

// Scales of the outputs of the two weight tiles; null: none.
struct TileScales {
  KernelScales low{};
  KernelScales high{};
};

// sums += scale * block, for `rows` rows of each tile; `at`: which 128 k these are.
SY_FORCE_INLINE void AddScaled(const TileSums& block, std::int64_t row_tiles, std::int64_t rows,
                               const TileScales& scales, std::int64_t at, TileSums* sums) {
  // Even tiles belong to the low outputs, odd ones to the high.
  const __m512 factors[2] = {ScalesAt(scales.low, at), ScalesAt(scales.high, at)};
  for (std::int64_t tile = 0; tile < 2 * row_tiles; ++tile) {
    const __m512 factor = factors[tile % 2];
    for (std::int64_t row = 0; row < rows; ++row) {
      float* sum = sums->tile[tile][row];
      const __m512 value = _mm512_load_ps(block.tile[tile][row]);
      _mm512_store_ps(sum, _mm512_fmadd_ps(value, factor, _mm512_load_ps(sum)));
    }
  }
}

// With scales along k: each 128 of k starts from empty tiles, whose sums are scaled in vector
// registers and added to `sums`. Tiles cannot scale, hence the round trip through memory every four
// steps.
SY_FORCE_INLINE void MultiplyScaled(TilePass pass, std::int64_t tile_rows, const TileScales& scales,
                                    TileSums* sums) {
  constexpr std::int64_t kSteps = kScaleBlock / kTileK;
  TileSums block;
  *sums = {};
  const std::int64_t steps = pass.in.steps;
  for (std::int64_t done = 0; done < steps; done += kSteps) {
    const std::int64_t left = steps - done;
    pass.in.steps = left < kSteps ? left : kSteps;
    Multiply(pass);
    StoreTiles(pass.row_tiles, &block);
    AddScaled(block, pass.row_tiles, tile_rows, scales, done / kSteps, sums);
    pass.in.rows += kSteps * pass.in.tile_bytes;
    pass.in.rows_2 += kSteps * pass.in.tile_bytes;
    pass.in.weights += kSteps * kTilePairBytes;
    pass.ahead.from += kSteps * pass.ahead.lines_per_step * kLineBytes;
  }
}

}  // namespace switchyard
