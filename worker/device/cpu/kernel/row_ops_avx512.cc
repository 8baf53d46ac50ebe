#include "worker/device/cpu/kernel/row_ops.h"
#include "worker/device/cpu/kernel/vector_avx512.h"

namespace switchyard {
namespace {

constexpr std::int64_t kLanes = 16;

SY_FORCE_INLINE __m512 LoadBf16(const Bf16* from, __mmask16 lanes) {
  return Bf16ToFloats(_mm256_maskz_loadu_epi16(lanes, from));
}

void WeightedSum(const float* const* rows, const float* weights, std::int64_t row_count,
                 std::int64_t hidden, Bf16* out) {
  for (std::int64_t i = 0; i < hidden; i += kLanes) {
    const __mmask16 lanes = FirstLanes(hidden - i);
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t row = 0; row < row_count; ++row) {
      sum = _mm512_fmadd_ps(_mm512_set1_ps(weights[row]),
                            _mm512_maskz_loadu_ps(lanes, rows[row] + i), sum);
    }
    _mm256_mask_storeu_epi16(out + i, lanes, RoundToBf16(sum));
  }
}

void WeightedSumBf16(const Bf16* const* rows, const float* weights, std::int64_t row_count,
                     std::int64_t hidden, float* out) {
  for (std::int64_t i = 0; i < hidden; i += kLanes) {
    const __mmask16 lanes = FirstLanes(hidden - i);
    __m512 sum = _mm512_setzero_ps();
    for (std::int64_t row = 0; row < row_count; ++row) {
      sum = _mm512_fmadd_ps(_mm512_set1_ps(weights[row]), LoadBf16(rows[row] + i, lanes), sum);
    }
    _mm512_mask_storeu_ps(out + i, lanes, sum);
  }
}

void SumBf16(const Bf16* const* rows, std::int64_t row_count, std::int64_t hidden, float* out) {
  for (std::int64_t i = 0; i < hidden; i += kLanes) {
    const __mmask16 lanes = FirstLanes(hidden - i);
    __m512 sum = row_count > 0 ? LoadBf16(rows[0] + i, lanes) : _mm512_setzero_ps();
    for (std::int64_t row = 1; row < row_count; ++row) {
      sum = _mm512_add_ps(sum, LoadBf16(rows[row] + i, lanes));
    }
    _mm512_mask_storeu_ps(out + i, lanes, sum);
  }
}

void RoundAll(const float* in, std::int64_t count, Bf16* out) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    const __mmask16 lanes = FirstLanes(count - i);
    _mm256_mask_storeu_epi16(out + i, lanes, RoundToBf16(_mm512_maskz_loadu_ps(lanes, in + i)));
  }
}

}  // namespace

constinit const RowKernels kAvx512RowKernels = {.weighted_sum = WeightedSum,
                                                .weighted_sum_bf16 = WeightedSumBf16,
                                                .sum_bf16 = SumBf16,
                                                .round_to_bf16 = RoundAll};

}  // namespace switchyard
