// Family amx_bf16: weights in the tiles layout, BF16 products summed in FP32 by TDPBF16PS, k
// ascending in blocks of 32; h rounded to BF16 for the second product.
//
// Rows lie in A tiles. Up to 16 rows make one tile of just that height: a matrix of one row costs
// no more than reading its weights. More rows make tiles of 16, the last filled up with zeros,
// taken two by two against two B tiles. A tile's rows do not touch each other, and the order along
// k is the same in both ways, so a row comes out the same in each. With scales along k the sums of
// each 128 k leave the tiles and are added up beside them.
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/kernel/packing.h"
#include "worker/device/cpu/kernel/tiles_amx.h"
#include "worker/device/cpu/kernel/vector_avx512.h"

namespace switchyard {
namespace {

constexpr std::int64_t kHalfLineBytes = kLineBytes / 2;
// Rows of a call are bounded so that the A tiles stay in L2 while the weights stream past.
constexpr std::int64_t kRowBytesPerCall = 1 << 20;
constexpr std::int64_t kRowsPerCallMin = 32;
constexpr std::int64_t kRowsPerCallMax = 512;

bool Usable(const CpuFeatures& cpu) { return cpu.amx_bf16; }

std::int64_t RowsPerCall(const KernelDims& dims) {
  const std::int64_t rows =
      kRowBytesPerCall / (2 * RoundUp(dims.hidden, kTileK)) / kRowsPerCallMin * kRowsPerCallMin;
  if (rows < kRowsPerCallMin) return kRowsPerCallMin;
  return rows > kRowsPerCallMax ? kRowsPerCallMax : rows;
}

// Scratch: x, then h, in A tiles, [row tile][block of 32 k][row][64 bytes].
KernelLayout Layout(const KernelDims& dims) {
  const std::int64_t rows = RowsPerCall(dims);
  return {.packed_bytes = TilesBytes(dims),
          .scratch_bytes =
              rows * 2 * (RoundUp(dims.hidden, kTileK) + RoundUp(dims.intermediate, kTileK)),
          .rows_per_call = rows,
          .gate_up_panels = CeilDiv(dims.intermediate, kPanelColumns),
          .down_panels = CeilDiv(dims.hidden, kDownPanelColumns)};
}

// Where things lie for one call.
struct Geometry {
  std::int64_t tile_rows = 0;  // height of every A tile
  std::int64_t row_tiles = 0;
  std::int64_t tile_bytes = 0;    // of an A tile
  std::int64_t hidden_steps = 0;  // blocks of 32 k of the first product
  std::int64_t middle_steps = 0;  // and of the second
  std::byte* x = nullptr;
  std::byte* h = nullptr;
  const std::byte* down = nullptr;  // packed
};

SY_FORCE_INLINE Geometry GeometryOf(const KernelCall& call) {
  Geometry g;
  g.tile_rows = call.row_count < kTileRows ? call.row_count : kTileRows;
  g.row_tiles = CeilDiv(call.row_count, kTileRows);
  g.tile_bytes = g.tile_rows * kLineBytes;
  g.hidden_steps = CeilDiv(call.dims.hidden, kTileK);
  g.middle_steps = CeilDiv(call.dims.intermediate, kTileK);
  g.x = call.scratch;
  g.h = g.x + g.row_tiles * g.hidden_steps * g.tile_bytes;
  g.down = call.weights +
           CeilDiv(call.dims.intermediate, kPanelColumns) * g.hidden_steps * kTilePairBytes;
  return g;
}

void LoadRows(const KernelCall& call) {
  const Geometry g = GeometryOf(call);
  const std::int64_t tail = call.dims.hidden - (g.hidden_steps - 1) * kTileK;
  const auto tail_lanes = static_cast<__mmask32>((std::uint64_t{1} << tail) - 1);
  for (std::int64_t row = 0; row < g.row_tiles * g.tile_rows; ++row) {
    std::byte* to =
        g.x + row / g.tile_rows * g.hidden_steps * g.tile_bytes + row % g.tile_rows * kLineBytes;
    const bool padding = row >= call.row_count;
    const Bf16* from = call.rows[padding ? 0 : row];
    for (std::int64_t step = 0; step < g.hidden_steps; ++step, to += g.tile_bytes) {
      const __mmask32 lanes = padding ? 0 : step + 1 < g.hidden_steps ? 0xffffffffU : tail_lanes;
      _mm512_store_si512(to, _mm512_maskz_loadu_epi16(lanes, from + step * kTileK));
    }
  }
}

// Row tiles `first` and, if there is one, `first + 1` against a panel. `in` is of row tile 0.
//
// With at most two row tiles the weights stream through once and are fetched just ahead. With more,
// the panel stays in L2 for all of them, and meanwhile the next panel is fetched in equal shares.
SY_FORCE_INLINE TilePass PassOf(const Geometry& g, std::int64_t first, TileOperands in) {
  TilePass pass = {
      .in = in,
      .ahead = {.from = in.weights + kPrefetchBytes, .lines_per_step = kTilePairBytes / kLineBytes},
      .row_tiles = first + 1 == g.row_tiles ? 1 : 2};
  if (g.row_tiles > 2) {
    const std::int64_t shares = CeilDiv(g.row_tiles, 2);
    pass.ahead.lines_per_step = CeilDiv(kTilePairBytes / kLineBytes, shares);
    pass.ahead.from = in.weights + in.steps * kTilePairBytes +
                      first / 2 * in.steps * pass.ahead.lines_per_step * kLineBytes;
  }
  const std::int64_t row_tile_bytes = in.steps * in.tile_bytes;
  pass.in.rows += first * row_tile_bytes;
  pass.in.rows_2 = pass.in.rows + row_tile_bytes;
  return pass;
}

struct GatedTile {
  const float (*gate)[kPanelColumns] = nullptr;
  const float (*up)[kPanelColumns] = nullptr;
};

// Scales and biases of a panel's sums, in place.
void ApplyAffine(const KernelAffine& affine, std::int64_t column, std::int64_t tiles,
                 TileSums* sums) {
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    for (std::int64_t row = 0; row < kTileRows; ++row) {
      float* gate = sums->tile[2 * tile][row];
      float* up = sums->tile[2 * tile + 1][row];
      _mm512_store_ps(gate, GateAffine(affine, column, _mm512_load_ps(gate)));
      _mm512_store_ps(up, UpAffine(affine, column, _mm512_load_ps(up)));
    }
  }
}

// `rows` rows of silu(gate) * up to half lines of an A tile; zeros beyond `lanes`.
SY_FORCE_INLINE void StoreGated(const GatedTile& in, std::int64_t rows, __mmask16 lanes,
                                std::byte* h) {
  for (std::int64_t row = 0; row < rows; ++row, h += kLineBytes) {
    const __m512 gate = _mm512_load_ps(in.gate[row]);
    const __m512 up = _mm512_load_ps(in.up[row]);
    // To nearest even; denormals go to zero, as which TDPBF16PS would take them anyway.
    const __m256bh value = _mm512_maskz_cvtneps_pbh(lanes, _mm512_mul_ps(Silu(gate), up));
    _mm256_store_si256(reinterpret_cast<__m256i*>(h), reinterpret_cast<__m256i>(value));
  }
}

void GateUp(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  const Geometry g = GeometryOf(call);
  TileSums sums = {};
  ConfigureTiles(g.tile_rows);
  const std::int64_t last_panel = CeilDiv(call.dims.intermediate, kPanelColumns) - 1;
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::byte* weights = call.weights + panel * g.hidden_steps * kTilePairBytes;
    // Columns beyond the matrix must be zeros, not the NaN that an infinite row would make of them.
    const __mmask16 lanes = FirstLanes(call.dims.intermediate - panel * kPanelColumns);
    const TileScales scales = {
        .low = ScalesFrom(call.blocks.gate, panel * kPanelColumns, call.dims.hidden),
        .high = ScalesFrom(call.blocks.up, panel * kPanelColumns, call.dims.hidden)};
    for (std::int64_t first = 0; first < g.row_tiles; first += 2) {
      const TilePass pass = PassOf(
          g, first,
          {.rows = g.x, .weights = weights, .steps = g.hidden_steps, .tile_bytes = g.tile_bytes});
      const std::int64_t tiles = pass.row_tiles;
      if (scales.low.at == nullptr) {
        Multiply(pass);
        StoreTiles(tiles, &sums);
      } else {
        MultiplyScaled(pass, g.tile_rows, scales, &sums);
      }
      if (call.affine != nullptr) ApplyAffine(*call.affine, panel * kPanelColumns, tiles, &sums);
      for (std::int64_t tile = 0; tile < tiles; ++tile) {
        std::byte* block = g.h + ((first + tile) * g.middle_steps + panel / 2) * g.tile_bytes;
        const GatedTile gated = {.gate = sums.tile[2 * tile], .up = sums.tile[2 * tile + 1]};
        StoreGated(gated, g.tile_rows, lanes, block + panel % 2 * kHalfLineBytes);
        // An odd number of panels leaves half a block of k; zero weights meet it, so it must be
        // finite.
        if (panel == last_panel && panel % 2 == 0) {
          StoreGated(gated, g.tile_rows, 0, block + kHalfLineBytes);
        }
      }
    }
  }
  _tile_release();
}

// Where the sums of one or two row tiles by a down panel go in the caller's output.
struct OutBlock {
  std::int64_t first_row = 0;
  std::int64_t column = 0;
  std::int64_t rows = 0;  // of all its tiles; may reach beyond the call's
};

// Straight from the tile registers; false, with nothing done, where they hang over the edge of the
// matrix.
SY_FORCE_INLINE bool StoreWholeTiles(const KernelCall& call, const OutBlock& to) {
  const std::int64_t hidden = call.dims.hidden;
  if (to.column + kDownPanelColumns > hidden || call.row_count - to.first_row < to.rows) {
    return false;
  }
  float* out = call.out + to.first_row * hidden + to.column;
  const std::int64_t stride = hidden * 4;
  _tile_stored(0, out, stride);
  _tile_stored(1, out + kPanelColumns, stride);
  if (to.rows <= kTileRows) return true;
  _tile_stored(2, out + kTileRows * hidden, stride);
  _tile_stored(3, out + kTileRows * hidden + kPanelColumns, stride);
  return true;
}

SY_FORCE_INLINE void StoreSums(const KernelCall& call, const OutBlock& to, const TileSums& sums) {
  const std::int64_t hidden = call.dims.hidden;
  const std::int64_t rows_left = call.row_count - to.first_row;
  const std::int64_t rows = rows_left < to.rows ? rows_left : to.rows;
  float* out = call.out + to.first_row * hidden + to.column;
  const __mmask16 low_lanes = FirstLanes(hidden - to.column);
  const __mmask16 high_lanes = FirstLanes(hidden - to.column - kPanelColumns);
  for (std::int64_t row = 0; row < rows; ++row, out += hidden) {
    const auto* low = sums.tile[row / kTileRows * 2];
    const auto* high = sums.tile[row / kTileRows * 2 + 1];
    _mm512_mask_storeu_ps(out, low_lanes, _mm512_load_ps(low[row % kTileRows]));
    _mm512_mask_storeu_ps(out + kPanelColumns, high_lanes, _mm512_load_ps(high[row % kTileRows]));
  }
}

void Down(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  const Geometry g = GeometryOf(call);
  TileSums sums = {};
  ConfigureTiles(g.tile_rows);
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::byte* weights = g.down + panel * g.middle_steps * kTilePairBytes;
    const std::int64_t column = panel * kDownPanelColumns;
    const TileScales scales = {
        .low = ScalesFrom(call.blocks.down, column, call.dims.intermediate),
        .high = ScalesFrom(call.blocks.down, column + kPanelColumns, call.dims.intermediate)};
    for (std::int64_t first = 0; first < g.row_tiles; first += 2) {
      const TilePass pass = PassOf(
          g, first,
          {.rows = g.h, .weights = weights, .steps = g.middle_steps, .tile_bytes = g.tile_bytes});
      const OutBlock to = {
          .first_row = first * kTileRows, .column = column, .rows = pass.row_tiles * g.tile_rows};
      if (scales.low.at == nullptr) {
        Multiply(pass);
        if (StoreWholeTiles(call, to)) continue;
        StoreTiles(pass.row_tiles, &sums);
      } else {
        MultiplyScaled(pass, g.tile_rows, scales, &sums);
      }
      StoreSums(call, to, sums);
    }
  }
  _tile_release();
}

// Where block `step` of 32 columns of a row of h lies.
SY_FORCE_INLINE std::byte* HiddenLine(const Geometry& g, std::int64_t row, std::int64_t step) {
  return g.h + (row / g.tile_rows * g.middle_steps + step) * g.tile_bytes +
         row % g.tile_rows * kLineBytes;
}

void LoadH(const KernelCall& call, std::int64_t row, Bf16* out) {
  const Geometry g = GeometryOf(call);
  for (std::int64_t first = 0; first < call.dims.intermediate; first += kTileK) {
    const std::int64_t left = call.dims.intermediate - first;
    const auto values = static_cast<std::size_t>(left < kTileK ? left : kTileK);
    __builtin_memcpy(out + first, HiddenLine(g, row, first / kTileK), values * sizeof(Bf16));
  }
}

void StoreH(const KernelCall& call, std::int64_t row, const Bf16* in) {
  const Geometry g = GeometryOf(call);
  for (std::int64_t first = 0; first < call.dims.intermediate; first += kTileK) {
    const std::int64_t left = call.dims.intermediate - first;
    const auto values = static_cast<std::size_t>(left < kTileK ? left : kTileK);
    __builtin_memcpy(HiddenLine(g, row, first / kTileK), in + first, values * sizeof(Bf16));
  }
}

}  // namespace

constinit const KernelFamily kAmxFamily = {.name = "amx_bf16",
                                           .usable = Usable,
                                           .layout = Layout,
                                           .pack = PackTiles,
                                           .load_rows = LoadRows,
                                           .gate_up = GateUp,
                                           .down = Down,
                                           .load_h = LoadH,
                                           .store_h = StoreH};

}  // namespace switchyard
