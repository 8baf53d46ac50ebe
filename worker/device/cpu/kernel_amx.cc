// Family amx_bf16: weights in the tiles layout, BF16 products summed in FP32 by TDPBF16PS, k
// ascending in blocks of 32; h rounded to BF16 for the second product.
//
// Rows lie in A tiles. Up to 16 rows make one tile of just that height: a matrix of one row costs
// no more than reading its weights. More rows make tiles of 16, the last filled up with zeros,
// taken two by two against two B tiles. A tile's rows do not touch each other, and the order along
// k is the same in both ways, so a row comes out the same in each.
#include "worker/device/cpu/kernels.h"
#include "worker/device/cpu/packing.h"
#include "worker/device/cpu/vector_avx512.h"

namespace switchyard {
namespace {

constexpr std::int64_t kTileRows = 16;
constexpr std::int64_t kHalfLineBytes = kLineBytes / 2;
constexpr std::int64_t kPairBytes = 2 * kTileBytes;  // the two B tiles of a step along k
// Rows of a call are bounded so that the A tiles stay in L2 while the weights stream past.
constexpr std::int64_t kRowBytesPerCall = 1 << 20;
constexpr std::int64_t kRowsPerCallMin = 32;
constexpr std::int64_t kRowsPerCallMax = 512;
// One or two row tiles: read ahead of the stream, into L1.
constexpr std::int64_t kPrefetchBytes = 1024;

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
  g.down =
      call.weights + CeilDiv(call.dims.intermediate, kPanelColumns) * g.hidden_steps * kPairBytes;
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

// Tiles 0 to 3 hold sums, 4 and 5 rows, 6 and 7 weights.
void ConfigureTiles(std::int64_t tile_rows) {
  struct alignas(64) Config {
    std::uint8_t palette = 1;
    std::uint8_t start_row = 0;
    std::uint8_t reserved[14] = {};
    std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
    std::uint8_t rows[16] = {};
  };
  Config config;
  for (int tile = 0; tile < 6; ++tile) config.rows[tile] = static_cast<std::uint8_t>(tile_rows);
  config.rows[6] = config.rows[7] = kTileRows;
  // GCC 12 tells its optimiser that LDTILECFG reads eight bytes, and that a tile load reads none.
  __asm__ volatile("" : : "r"(&config) : "memory");
  _tile_loadconfig(&config);
}

// What to fetch while a step along k runs.
struct Ahead {
  const std::byte* from = nullptr;
  std::int64_t lines_per_step = 0;
};

struct Operands {
  const std::byte* rows = nullptr;     // A tiles of the first row tile
  const std::byte* rows_2 = nullptr;   // and of the second; null when there is one
  const std::byte* weights = nullptr;  // pairs of B tiles
  std::int64_t steps = 0;
  std::int64_t tile_bytes = 0;  // of an A tile
};

SY_FORCE_INLINE void Fetch(Ahead* ahead) {
  for (std::int64_t line = 0; line < ahead->lines_per_step; ++line) {
    _mm_prefetch(ahead->from, _MM_HINT_T0);
    ahead->from += kLineBytes;
  }
}

// Tiles 0 and 1: one row tile by two weight tiles.
SY_FORCE_INLINE void MultiplyOne(const Operands& in, Ahead ahead) {
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
    b += kPairBytes;
  }
}

// Tiles 0 to 3: two row tiles by two weight tiles.
SY_FORCE_INLINE void MultiplyTwo(const Operands& in, Ahead ahead) {
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
    b += kPairBytes;
  }
}

// The sums of up to two row tiles by two weight tiles, out of the tile registers.
struct alignas(64) Sums {
  float tile[4][kTileRows][kPanelColumns];
};

// Multiplies row tiles `first` and, if there is one, `first + 1`; returns how many.
//
// With at most two row tiles the weights stream through once and are fetched just ahead. With more,
// the panel stays in L2 for all of them, and meanwhile the next panel is fetched in equal shares.
SY_FORCE_INLINE std::int64_t MultiplyRowTiles(const Geometry& g, std::int64_t first, Operands in) {
  Ahead ahead = {.from = in.weights + kPrefetchBytes, .lines_per_step = kPairBytes / kLineBytes};
  if (g.row_tiles > 2) {
    const std::int64_t shares = CeilDiv(g.row_tiles, 2);
    ahead.lines_per_step = CeilDiv(kPairBytes / kLineBytes, shares);
    ahead.from = in.weights + in.steps * kPairBytes +
                 first / 2 * in.steps * ahead.lines_per_step * kLineBytes;
  }
  const std::int64_t row_tile_bytes = in.steps * in.tile_bytes;
  in.rows += first * row_tile_bytes;
  if (first + 1 == g.row_tiles) {
    MultiplyOne(in, ahead);
    return 1;
  }
  in.rows_2 = in.rows + row_tile_bytes;
  MultiplyTwo(in, ahead);
  return 2;
}

SY_FORCE_INLINE void StoreTiles(std::int64_t row_tiles, Sums* sums) {
  _tile_stored(0, sums->tile[0], kLineBytes);
  _tile_stored(1, sums->tile[1], kLineBytes);
  if (row_tiles < 2) return;
  _tile_stored(2, sums->tile[2], kLineBytes);
  _tile_stored(3, sums->tile[3], kLineBytes);
}

struct GatedTile {
  const float (*gate)[kPanelColumns] = nullptr;
  const float (*up)[kPanelColumns] = nullptr;
};

// Scales and biases of a panel's sums, in place.
void ApplyAffine(const KernelAffine& affine, std::int64_t column, std::int64_t tiles, Sums* sums) {
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
  Sums sums = {};
  ConfigureTiles(g.tile_rows);
  const std::int64_t last_panel = CeilDiv(call.dims.intermediate, kPanelColumns) - 1;
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::byte* weights = call.weights + panel * g.hidden_steps * kPairBytes;
    // Columns beyond the matrix must be zeros, not the NaN that an infinite row would make of them.
    const __mmask16 lanes = FirstLanes(call.dims.intermediate - panel * kPanelColumns);
    for (std::int64_t first = 0; first < g.row_tiles; first += 2) {
      const std::int64_t tiles = MultiplyRowTiles(
          g, first,
          {.rows = g.x, .weights = weights, .steps = g.hidden_steps, .tile_bytes = g.tile_bytes});
      StoreTiles(tiles, &sums);
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

// The sums of `tiles` row tiles from `first_row` on to the caller's output, from column `column`
// on. Whole tiles go straight there; what hangs over the edge of the matrix, by way of `sums`.
SY_FORCE_INLINE void StoreOut(const KernelCall& call, std::int64_t tile_rows, std::int64_t tiles,
                              std::int64_t first_row, std::int64_t column, Sums* sums) {
  const std::int64_t hidden = call.dims.hidden;
  const std::int64_t rows_left = call.row_count - first_row;
  float* out = call.out + first_row * hidden + column;
  if (column + kDownPanelColumns <= hidden && rows_left >= tiles * tile_rows) {
    const std::int64_t stride = hidden * 4;
    _tile_stored(0, out, stride);
    _tile_stored(1, out + kPanelColumns, stride);
    if (tiles < 2) return;
    _tile_stored(2, out + kTileRows * hidden, stride);
    _tile_stored(3, out + kTileRows * hidden + kPanelColumns, stride);
    return;
  }
  StoreTiles(tiles, sums);
  const std::int64_t rows = rows_left < tiles * tile_rows ? rows_left : tiles * tile_rows;
  const __mmask16 low_lanes = FirstLanes(hidden - column);
  const __mmask16 high_lanes = FirstLanes(hidden - column - kPanelColumns);
  for (std::int64_t row = 0; row < rows; ++row, out += hidden) {
    const auto* low = sums->tile[row / kTileRows * 2];
    const auto* high = sums->tile[row / kTileRows * 2 + 1];
    _mm512_mask_storeu_ps(out, low_lanes, _mm512_load_ps(low[row % kTileRows]));
    _mm512_mask_storeu_ps(out + kPanelColumns, high_lanes, _mm512_load_ps(high[row % kTileRows]));
  }
}

void Down(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  const Geometry g = GeometryOf(call);
  Sums sums = {};
  ConfigureTiles(g.tile_rows);
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::byte* weights = g.down + panel * g.middle_steps * kPairBytes;
    for (std::int64_t first = 0; first < g.row_tiles; first += 2) {
      const std::int64_t tiles = MultiplyRowTiles(
          g, first,
          {.rows = g.h, .weights = weights, .steps = g.middle_steps, .tile_bytes = g.tile_bytes});
      StoreOut(call, g.tile_rows, tiles, first * kTileRows, panel * kDownPanelColumns, &sums);
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
