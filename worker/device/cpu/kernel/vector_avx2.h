// Vector arithmetic that the AVX2 files share, operation for operation that of vector_avx512.h,
// whose comments say why. Everything is forced inline, as there. Include it only from files
// compiled with -mavx2 -mfma.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 takes the deliberately undefined operands in its own intrinsics for a mistake of ours.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include "worker/device/cpu/kernel/force_inline.h"
#include "worker/device/cpu/kernel/kernel_family.h"

namespace switchyard {

// Eight FP32 to BF16, as FloatToBf16: to nearest even, NaN quieted.
SY_FORCE_INLINE __m128i RoundToBf16(__m256 value) {
  const __m256i bits = _mm256_castps_si256(value);
  const __m256i upper = _mm256_srli_epi32(bits, 16);
  // Ties go to the even code: half a step less one is added, and one more when the code is odd.
  const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd), 16);
  const __m256i quieted = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
  const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  const __m256i words = _mm256_blendv_epi8(rounded, quieted, is_nan);
  // Packs within the halves of the register; the permutation brings the two results together.
  const __m256i packed = _mm256_packus_epi32(words, words);
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08));
}

// Eight BF16 to FP32.
SY_FORCE_INLINE __m256 Bf16ToFloats(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// The two FP32 vectors of half a line of the lanes layout (packing.h).
SY_FORCE_INLINE __m256 LowWeights(__m256i line) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(line, 16));
}
SY_FORCE_INLINE __m256 HighWeights(__m256i line) {
  return _mm256_castsi256_ps(_mm256_and_si256(line, _mm256_set1_epi32(~0xffff)));
}

SY_FORCE_INLINE __m256 Exp(__m256 x) {
  const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504F)),
                                   _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 r = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375F), x);
  r = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4F), r);
  __m256 p = _mm256_set1_ps(1.9875691500e-4F);
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.3981999507e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(8.3334519073e-3F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(4.1665795894e-2F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(1.6666665459e-1F));
  p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(5.0000001201e-1F));
  p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(r, r), r), _mm256_set1_ps(1.0F));
  // Times 2^n, exactly: -126 <= n <= 126, and the product is a normal number.
  const __m256i exponent =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(exponent));
}

SY_FORCE_INLINE __m256 Reciprocal(__m256 x) {
  const __m256 one = _mm256_set1_ps(1.0F);
  __m256 r =
      _mm256_castsi256_ps(_mm256_sub_epi32(_mm256_set1_epi32(0x7ef311c7), _mm256_castps_si256(x)));
  r = _mm256_fmadd_ps(r, _mm256_fnmadd_ps(x, r, one), r);
  r = _mm256_fmadd_ps(r, _mm256_fnmadd_ps(x, r, one), r);
  return _mm256_fmadd_ps(r, _mm256_fnmadd_ps(x, r, one), r);
}

SY_FORCE_INLINE __m256 Silu(__m256 x) {
  __m256 negated = _mm256_sub_ps(_mm256_setzero_ps(), x);
  // The second operand is what MIN and MAX return for a NaN: it must be the value.
  negated = _mm256_min_ps(_mm256_set1_ps(87.0F), negated);
  negated = _mm256_max_ps(_mm256_set1_ps(-87.0F), negated);
  return _mm256_mul_ps(x, Reciprocal(_mm256_add_ps(_mm256_set1_ps(1.0F), Exp(negated))));
}

// The first `count` of eight lanes, for masked loads and stores; all from 8 on, none below 1.
SY_FORCE_INLINE __m256i FirstLanes(std::int64_t count) {
  const std::int32_t most = count > 8 ? 8 : static_cast<std::int32_t>(count < 0 ? 0 : count);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(most), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

}  // namespace switchyard
