// Family avx2, for CPUs without AVX-512: weights in the lanes layout, turned from BF16 to FP32 by a
// shift and a mask; FP32 fused multiply-adds in one chain along k; h kept in FP32. Each output goes
// through the operations of family avx512, in their order.
//
// Up to six rows share the reading of half a panel: sixteen registers hold no more.
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/kernel/packing.h"
#include "worker/device/cpu/kernel/row_blocks.h"
#include "worker/device/cpu/kernel/vector_avx2.h"

namespace switchyard {
namespace {

constexpr std::int64_t kRowBlock = 6;
constexpr std::int64_t kRowsPerCall = 10 * kRowBlock;
constexpr std::int64_t kHalfColumns = 8;
constexpr std::int64_t kHalfBytes = 32;
// Far enough ahead for DRAM, near enough to stay in L1.
constexpr std::int64_t kPrefetchBytes = 1024;

bool Usable(const CpuFeatures& cpu) { return cpu.avx2; }

KernelLayout Layout(const KernelDims& dims) { return LayoutOfRowBlocks(dims, kRowsPerCall); }
SY_FORCE_INLINE RowBlock BlockAt(const KernelCall& call, std::int64_t first) {
  return RowBlockAt<kRowBlock>(call, first);
}
void LoadRows(const KernelCall& call) { LoadRowBlocks<kRowBlock>(call); }

// Products of half a panel for the rows of a block.
struct Sums {
  __m256 low[kRowBlock];
  __m256 high[kRowBlock];
};

struct Stream {
  const float* x = nullptr;         // [k_count][rows]
  const std::byte* half = nullptr;  // of the first of k_count lines
  std::int64_t k_count = 0;
  // The scales of the half panel's low and high outputs; null: none.
  KernelScales low_scales{};
  KernelScales high_scales{};
};

// Scales of eight outputs at the 128 k number `block`.
SY_FORCE_INLINE __m256 ScalesAt(const KernelScales& scales, std::int64_t block) {
  const float* at = scales.at + block * scales.width;
  return scales.width == 1 ? _mm256_set1_ps(*at) : _mm256_load_ps(at);
}

template <int kRows>
SY_FORCE_INLINE void Multiply(const Stream& stream, Sums* sums) {
  __m256 low[kRows];
  __m256 high[kRows];
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) low[row] = high[row] = _mm256_setzero_ps();
  const std::byte* half = stream.half;
  const float* x = stream.x;
  for (std::int64_t k = 0; k < stream.k_count; ++k, half += kLineBytes, x += kRows) {
    const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(half));
    _mm_prefetch(half + kPrefetchBytes, _MM_HINT_T0);
    const __m256 low_weights = LowWeights(both);
    const __m256 high_weights = HighWeights(both);
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
      const __m256 value = _mm256_set1_ps(x[row]);
      low[row] = _mm256_fmadd_ps(value, low_weights, low[row]);
      high[row] = _mm256_fmadd_ps(value, high_weights, high[row]);
    }
  }
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) {
    sums->low[row] = low[row];
    sums->high[row] = high[row];
  }
}

// The same with scales: a chain for each 128 k, and one of their scaled sums.
template <int kRows>
SY_FORCE_INLINE void MultiplyScaled(const Stream& stream, Sums* sums) {
  Sums block;
#pragma GCC unroll 6
  for (int row = 0; row < kRows; ++row) sums->low[row] = sums->high[row] = _mm256_setzero_ps();
  for (std::int64_t k = 0, at = 0; k < stream.k_count; k += kScaleBlock, ++at) {
    const std::int64_t left = stream.k_count - k;
    Multiply<kRows>({.x = stream.x + k * kRows,
                     .half = stream.half + k * kLineBytes,
                     .k_count = left < kScaleBlock ? left : kScaleBlock},
                    &block);
    const __m256 low_scale = ScalesAt(stream.low_scales, at);
    const __m256 high_scale = ScalesAt(stream.high_scales, at);
#pragma GCC unroll 6
    for (int row = 0; row < kRows; ++row) {
      sums->low[row] = _mm256_fmadd_ps(block.low[row], low_scale, sums->low[row]);
      sums->high[row] = _mm256_fmadd_ps(block.high[row], high_scale, sums->high[row]);
    }
  }
}

template <int kRows>
SY_FORCE_INLINE void MultiplyHalf(const Stream& stream, Sums* sums) {
  if (stream.low_scales.at == nullptr) {
    Multiply<kRows>(stream, sums);
  } else {
    MultiplyScaled<kRows>(stream, sums);
  }
}

// Never inlined, so that each loop is compiled by itself.
__attribute__((noinline)) void MultiplyBlock(std::int64_t rows, const Stream& stream, Sums* sums) {
  switch (rows) {
    case 1:
      return MultiplyHalf<1>(stream, sums);
    case 2:
      return MultiplyHalf<2>(stream, sums);
    case 3:
      return MultiplyHalf<3>(stream, sums);
    case 4:
      return MultiplyHalf<4>(stream, sums);
    case 5:
      return MultiplyHalf<5>(stream, sums);
    default:
      return MultiplyHalf<6>(stream, sums);
  }
}

// The scales of the half of a panel's columns that begins at `column` of it.
SY_FORCE_INLINE KernelScales HalfOf(const KernelScales& scales, std::int64_t column) {
  if (scales.at == nullptr || scales.width == 1) return scales;
  return {.at = scales.at + column, .width = scales.width};
}

SY_FORCE_INLINE __m256 Affine(__m256 sums, const float* scale, const float* bias) {
  return _mm256_fmadd_ps(sums, _mm256_load_ps(scale), _mm256_load_ps(bias));
}

void GateUp(const KernelCall& call, std::int64_t begin, std::int64_t end) {
  const auto [hidden, intermediate] = call.dims;
  Sums sums = {};
  for (std::int64_t panel = begin; panel < end; ++panel) {
    const std::byte* lines = call.weights + panel * hidden * kLineBytes;
    const std::int64_t first_column = panel * kPanelColumns;
    const KernelScales gate_scales = ScalesFrom(call.blocks.gate, first_column, hidden);
    const KernelScales up_scales = ScalesFrom(call.blocks.up, first_column, hidden);
    for (std::int64_t first = 0; first < call.row_count; first += kRowBlock) {
      const RowBlock block = BlockAt(call, first);
      for (std::int64_t half = 0; half < kPanelColumns; half += kHalfColumns) {
        MultiplyBlock(block.rows,
                      {.x = block.x,
                       .half = lines + half / kHalfColumns * kHalfBytes,
                       .k_count = hidden,
                       .low_scales = HalfOf(gate_scales, half),
                       .high_scales = HalfOf(up_scales, half)},
                      &sums);
        const std::int64_t column = first_column + half;
        const std::int64_t left = intermediate - column;
        const std::int64_t columns = left < kHalfColumns ? left : kHalfColumns;
        for (std::int64_t row = 0; row < block.rows; ++row) {
          alignas(32) float h[kHalfColumns];
          __m256 gate = sums.low[row];
          __m256 up = sums.high[row];
          if (const KernelAffine* affine = call.affine; affine != nullptr) {
            gate = Affine(gate, affine->gate_scale + column, affine->gate_bias + column);
            up = Affine(up, affine->up_scale + column, affine->up_bias + column);
          }
          _mm256_store_ps(h, _mm256_mul_ps(Silu(gate), up));
          for (std::int64_t j = 0; j < columns; ++j) {
            block.h[(column + j) * block.rows + row] = h[j];
          }
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
    const std::byte* lines = down + panel * intermediate * kLineBytes;
    const std::int64_t first_column = panel * kDownPanelColumns;
    const KernelScales low_scales = ScalesFrom(call.blocks.down, first_column, intermediate);
    const KernelScales high_scales =
        ScalesFrom(call.blocks.down, first_column + kPanelColumns, intermediate);
    for (std::int64_t first = 0; first < call.row_count; first += kRowBlock) {
      const RowBlock block = BlockAt(call, first);
      for (std::int64_t half = 0; half < kPanelColumns; half += kHalfColumns) {
        MultiplyBlock(block.rows,
                      {.x = block.h,
                       .half = lines + half / kHalfColumns * kHalfBytes,
                       .k_count = intermediate,
                       .low_scales = HalfOf(low_scales, half),
                       .high_scales = HalfOf(high_scales, half)},
                      &sums);
        const std::int64_t low = first_column + half;
        const std::int64_t high = low + kPanelColumns;
        for (std::int64_t row = 0; row < block.rows; ++row) {
          float* out = call.out + (first + row) * hidden;
          _mm256_maskstore_ps(out + low, FirstLanes(hidden - low), sums.low[row]);
          _mm256_maskstore_ps(out + high, FirstLanes(hidden - high), sums.high[row]);
        }
      }
    }
  }
}

// H lies in blocks of rows, its columns side by side.
void LoadH(const KernelCall& call, std::int64_t row, Bf16* out) {
  const RowBlock block = BlockAt(call, row / kRowBlock * kRowBlock);
  const float* h = block.h + row % kRowBlock;
  for (std::int64_t i = 0; i < call.dims.intermediate; ++i) {
    const __m128i bits = RoundToBf16(_mm256_set1_ps(h[i * block.rows]));
    out[i] = static_cast<Bf16>(_mm_extract_epi16(bits, 0));
  }
}

void StoreH(const KernelCall& call, std::int64_t row, const Bf16* in) {
  StoreHOfRow<kRowBlock>(call, row, in);
}

}  // namespace

constinit const KernelFamily kAvx2Family = {.name = "avx2",
                                            .usable = Usable,
                                            .layout = Layout,
                                            .pack = PackLanes,
                                            .load_rows = LoadRows,
                                            .gate_up = GateUp,
                                            .down = Down,
                                            .load_h = LoadH,
                                            .store_h = StoreH};

}  // namespace switchyard
