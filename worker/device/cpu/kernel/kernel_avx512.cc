// Family avx512: weights in the lanes layout, turned from BF16 to FP32 by a shift and a mask; FP32
// fused multiply-adds in one chain along k; h kept in FP32.
//
// Up to eight rows share the reading of a panel. The chain of a row is the same whatever their
// number. With scales along k it is cut after each 128 k.
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/kernel/packing.h"
#include "worker/device/cpu/kernel/row_blocks.h"
#include "worker/device/cpu/kernel/vector_avx512.h"

namespace switchyard {
namespace {

constexpr std::int64_t kRowsPerCall = 64;
constexpr std::int64_t kRowBlock = 8;
// Far enough ahead for DRAM, near enough to stay in L1.
constexpr std::int64_t kPrefetchBytes = 1024;

bool Usable(const CpuFeatures& cpu) { return cpu.avx512; }

KernelLayout Layout(const KernelDims& dims) { return LayoutOfRowBlocks(dims, kRowsPerCall); }
SY_FORCE_INLINE RowBlock BlockAt(const KernelCall& call, std::int64_t first) {
  return RowBlockAt<kRowBlock>(call, first);
}
void LoadRows(const KernelCall& call) { LoadRowBlocks<kRowBlock>(call); }

// A panel's products for the rows of a block.
struct Sums {
  __m512 low[kRowBlock];
  __m512 high[kRowBlock];
};

struct Stream {
  const float* x = nullptr;          // [k_count][rows]
  const std::byte* panel = nullptr;  // k_count lines
  std::int64_t k_count = 0;
  // The scales of the panel's low and high outputs; null: none.
  KernelScales low_scales{};
  KernelScales high_scales{};
};

template <int kRows, bool kPrefetch>
SY_FORCE_INLINE void Multiply(const Stream& stream, Sums* sums) {
  __m512 low[kRows];
  __m512 high[kRows];
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) low[row] = high[row] = _mm512_setzero_ps();
  const std::byte* line = stream.panel;
  const float* x = stream.x;
  for (std::int64_t k = 0; k < stream.k_count; ++k, line += kLineBytes, x += kRows) {
    const __m512i both = _mm512_load_si512(line);
    if constexpr (kPrefetch) _mm_prefetch(line + kPrefetchBytes, _MM_HINT_T0);
    const __m512 low_weights = LowWeights(both);
    const __m512 high_weights = HighWeights(both);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      const __m512 value = _mm512_set1_ps(x[row]);
      low[row] = _mm512_fmadd_ps(value, low_weights, low[row]);
      high[row] = _mm512_fmadd_ps(value, high_weights, high[row]);
    }
  }
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) {
    sums->low[row] = low[row];
    sums->high[row] = high[row];
  }
}

// The same with scales: a chain for each 128 k, and one of their scaled sums.
template <int kRows, bool kPrefetch>
SY_FORCE_INLINE void MultiplyScaled(const Stream& stream, Sums* sums) {
  Sums block;
#pragma GCC unroll 8
  for (int row = 0; row < kRows; ++row) sums->low[row] = sums->high[row] = _mm512_setzero_ps();
  for (std::int64_t k = 0, at = 0; k < stream.k_count; k += kScaleBlock, ++at) {
    const std::int64_t left = stream.k_count - k;
    Multiply<kRows, kPrefetch>({.x = stream.x + k * kRows,
                                .panel = stream.panel + k * kLineBytes,
                                .k_count = left < kScaleBlock ? left : kScaleBlock},
                               &block);
    const __m512 low_scale = ScalesAt(stream.low_scales, at);
    const __m512 high_scale = ScalesAt(stream.high_scales, at);
#pragma GCC unroll 8
    for (int row = 0; row < kRows; ++row) {
      sums->low[row] = _mm512_fmadd_ps(block.low[row], low_scale, sums->low[row]);
      sums->high[row] = _mm512_fmadd_ps(block.high[row], high_scale, sums->high[row]);
    }
  }
}

template <int kRows, bool kPrefetch, bool kScaled>
SY_FORCE_INLINE void MultiplyPanel(const Stream& stream, Sums* sums) {
  if constexpr (kScaled) {
    MultiplyScaled<kRows, kPrefetch>(stream, sums);
  } else {
    Multiply<kRows, kPrefetch>(stream, sums);
  }
}

template <bool kPrefetch, bool kScaled>
SY_FORCE_INLINE void MultiplyRows(std::int64_t rows, const Stream& stream, Sums* sums) {
  switch (rows) {
    case 1:
      return MultiplyPanel<1, kPrefetch, kScaled>(stream, sums);
    case 2:
      return MultiplyPanel<2, kPrefetch, kScaled>(stream, sums);
    case 3:
      return MultiplyPanel<3, kPrefetch, kScaled>(stream, sums);
    case 4:
      return MultiplyPanel<4, kPrefetch, kScaled>(stream, sums);
    case 5:
      return MultiplyPanel<5, kPrefetch, kScaled>(stream, sums);
    case 6:
      return MultiplyPanel<6, kPrefetch, kScaled>(stream, sums);
    case 7:
      return MultiplyPanel<7, kPrefetch, kScaled>(stream, sums);
    default:
      return MultiplyPanel<8, kPrefetch, kScaled>(stream, sums);
  }
}

// The first block of a call brings the panel in from memory, the others find it in L2. Never
// inlined, so that the loops of plain weights are compiled by themselves.
template <bool kScaled>
__attribute__((noinline)) void MultiplyBlockOf(const RowBlock& block, const Stream& stream,
                                               Sums* sums) {
  if (block.first == 0) {
    MultiplyRows<true, kScaled>(block.rows, stream, sums);
  } else {
    MultiplyRows<false, kScaled>(block.rows, stream, sums);
  }
}

SY_FORCE_INLINE void MultiplyBlock(const RowBlock& block, const Stream& stream, Sums* sums) {
  if (stream.low_scales.at == nullptr) {
    MultiplyBlockOf<false>(block, stream, sums);
  } else {
    MultiplyBlockOf<true>(block, stream, sums);
  }
}

void GateUp(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  const std::int64_t hidden = call.dims.hidden;
  Sums sums = {};
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::int64_t first_column = panel * kPanelColumns;
    const std::int64_t left = call.dims.intermediate - first_column;
    const std::int64_t columns = left < kPanelColumns ? left : kPanelColumns;
    for (std::int64_t first = 0; first < call.row_count; first += kRowBlock) {
      const RowBlock block = BlockAt(call, first);
      MultiplyBlock(block,
                    {.x = block.x,
                     .panel = call.weights + panel * hidden * kLineBytes,
                     .k_count = hidden,
                     .low_scales = ScalesFrom(call.blocks.gate, first_column, hidden),
                     .high_scales = ScalesFrom(call.blocks.up, first_column, hidden)},
                    &sums);
      for (std::int64_t row = 0; row < block.rows; ++row) {
        alignas(64) float h[kPanelColumns];
        __m512 gate = sums.low[row];
        __m512 up = sums.high[row];
        if (call.affine != nullptr) {
          gate = GateAffine(*call.affine, first_column, gate);
          up = UpAffine(*call.affine, first_column, up);
        }
        _mm512_store_ps(h, _mm512_mul_ps(Silu(gate), up));
        for (std::int64_t j = 0; j < columns; ++j) {
          block.h[(first_column + j) * block.rows + row] = h[j];
        }
      }
    }
  }
}

void Down(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  const auto [hidden, intermediate] = call.dims;
  const std::byte* down = call.weights + CeilDiv(intermediate, kPanelColumns) * hidden * kLineBytes;
  Sums sums = {};
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::int64_t first_column = panel * kDownPanelColumns;
    const __mmask16 low_lanes = FirstLanes(hidden - first_column);
    const __mmask16 high_lanes = FirstLanes(hidden - first_column - kPanelColumns);
    const KernelScales& scales = call.blocks.down;
    for (std::int64_t first = 0; first < call.row_count; first += kRowBlock) {
      const RowBlock block = BlockAt(call, first);
      MultiplyBlock(block,
                    {.x = block.h,
                     .panel = down + panel * intermediate * kLineBytes,
                     .k_count = intermediate,
                     .low_scales = ScalesFrom(scales, first_column, intermediate),
                     .high_scales = ScalesFrom(scales, first_column + kPanelColumns, intermediate)},
                    &sums);
      for (std::int64_t row = 0; row < block.rows; ++row) {
        float* out = call.out + (first + row) * hidden + first_column;
        _mm512_mask_storeu_ps(out, low_lanes, sums.low[row]);
        _mm512_mask_storeu_ps(out + kPanelColumns, high_lanes, sums.high[row]);
      }
    }
  }
}

// H lies in blocks of rows, its columns side by side.
void LoadH(const KernelCall& call, std::int64_t row, Bf16* out) {
  const RowBlock block = BlockAt(call, row / kRowBlock * kRowBlock);
  const float* h = block.h + row % kRowBlock;
  for (std::int64_t i = 0; i < call.dims.intermediate; ++i) {
    const __m256i bits = RoundToBf16(_mm512_set1_ps(h[i * block.rows]));
    out[i] = static_cast<Bf16>(_mm256_extract_epi16(bits, 0));
  }
}

void StoreH(const KernelCall& call, std::int64_t row, const Bf16* in) {
  StoreHOfRow<kRowBlock>(call, row, in);
}

}  // namespace

constinit const KernelFamily kAvx512Family = {.name = "avx512",
                                              .usable = Usable,
                                              .layout = Layout,
                                              .pack = PackLanes,
                                              .load_rows = LoadRows,
                                              .gate_up = GateUp,
                                              .down = Down,
                                              .load_h = LoadH,
                                              .store_h = StoreH};

}  // namespace switchyard
