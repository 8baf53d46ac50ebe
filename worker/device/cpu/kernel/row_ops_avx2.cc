#include "worker/device/cpu/kernel/row_ops.h"
#include "worker/device/cpu/kernel/vector_avx2.h"

namespace switchyard {
namespace {

constexpr std::int64_t kLanes = 8;

// AVX2 has no masked loads and stores of 16 bits: the rest of a row passes through the stack.
SY_FORCE_INLINE __m256 LoadBf16(const Bf16* from, std::int64_t count) {
  if (count >= kLanes) return Bf16ToFloats(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  alignas(16) std::uint16_t bits[kLanes] = {};
  __builtin_memcpy(bits, from, static_cast<std::size_t>(count) * sizeof(Bf16));
  return Bf16ToFloats(_mm_load_si128(reinterpret_cast<const __m128i*>(bits)));
}

SY_FORCE_INLINE __m256 LoadFloats(const float* from, std::int64_t count) {
  return count >= kLanes ? _mm256_loadu_ps(from) : _mm256_maskload_ps(from, FirstLanes(count));
}

SY_FORCE_INLINE void StoreFloats(float* to, std::int64_t count, __m256 value) {
  if (count >= kLanes) return _mm256_storeu_ps(to, value);
  _mm256_maskstore_ps(to, FirstLanes(count), value);
}

SY_FORCE_INLINE void StoreBf16(Bf16* to, std::int64_t count, __m256 value) {
  const __m128i rounded = RoundToBf16(value);
  if (count >= kLanes) return _mm_storeu_si128(reinterpret_cast<__m128i*>(to), rounded);
  alignas(16) std::uint16_t bits[kLanes];
  _mm_store_si128(reinterpret_cast<__m128i*>(bits), rounded);
  __builtin_memcpy(to, bits, static_cast<std::size_t>(count) * sizeof(Bf16));
}

void WeightedSum(const float* const* rows, const float* weights, std::int64_t row_count,
                 std::int64_t hidden, Bf16* out) {
  for (std::int64_t i = 0; i < hidden; i += kLanes) {
    __m256 sum = _mm256_setzero_ps();
    for (std::int64_t row = 0; row < row_count; ++row) {
      sum =
          _mm256_fmadd_ps(_mm256_set1_ps(weights[row]), LoadFloats(rows[row] + i, hidden - i), sum);
    }
    StoreBf16(out + i, hidden - i, sum);
  }
}

void WeightedSumBf16(const Bf16* const* rows, const float* weights, std::int64_t row_count,
                     std::int64_t hidden, float* out) {
  for (std::int64_t i = 0; i < hidden; i += kLanes) {
    __m256 sum = _mm256_setzero_ps();
    for (std::int64_t row = 0; row < row_count; ++row) {
      sum = _mm256_fmadd_ps(_mm256_set1_ps(weights[row]), LoadBf16(rows[row] + i, hidden - i), sum);
    }
    StoreFloats(out + i, hidden - i, sum);
  }
}

void SumBf16(const Bf16* const* rows, std::int64_t row_count, std::int64_t hidden, float* out) {
  for (std::int64_t i = 0; i < hidden; i += kLanes) {
    __m256 sum = row_count > 0 ? LoadBf16(rows[0] + i, hidden - i) : _mm256_setzero_ps();
    for (std::int64_t row = 1; row < row_count; ++row) {
      sum = _mm256_add_ps(sum, LoadBf16(rows[row] + i, hidden - i));
    }
    StoreFloats(out + i, hidden - i, sum);
  }
}

void RoundAll(const float* in, std::int64_t count, Bf16* out) {
  for (std::int64_t i = 0; i < count; i += kLanes) {
    StoreBf16(out + i, count - i, LoadFloats(in + i, count - i));
  }
}

}  // namespace

constinit const RowKernels kAvx2RowKernels = {.weighted_sum = WeightedSum,
                                              .weighted_sum_bf16 = WeightedSumBf16,
                                              .sum_bf16 = SumBf16,
                                              .round_to_bf16 = RoundAll};

}  // namespace switchyard
