// Vector arithmetic that the AVX-512 files share. Everything is forced inline, so that no copy of
// it compiled for a newer instruction set can be linked into code for an older one. Include it only
// from files compiled with -mavx512*.
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

// Sixteen FP32 to BF16, as FloatToBf16: to nearest even, NaN quieted. (VCVTNEPS2BF16 would flush
// denormals, and is not on every AVX-512 CPU.)
SY_FORCE_INLINE __m256i RoundToBf16(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  // Ties go to the even code: half a step less one is added, and one more when the code is odd.
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd), 16);
  // The upper half of a NaN may look like an infinity when its payload is in the lower half; the
  // quiet bit keeps it a NaN.
  const __m512i quieted = _mm512_or_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(rounded, is_nan, quieted));
}

// Sixteen BF16 to FP32.
SY_FORCE_INLINE __m512 Bf16ToFloats(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// The two FP32 vectors of a line of the lanes layout (packing.h).
SY_FORCE_INLINE __m512 LowWeights(__m512i line) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(line, 16));
}
// A BF16 number is the upper half of an FP32 number, so a shift or a mask decodes it.
SY_FORCE_INLINE __m512 HighWeights(__m512i line) {
  return _mm512_castsi512_ps(_mm512_and_si512(line, _mm512_set1_epi32(~0xffff)));
}

// exp for -87 <= x <= 87, to about 2 ulp (coefficients of Cephes' expf); NaN stays NaN. Each lane
// is computed by itself, so its place in the vector does not matter.
// The bounds keep the result within FP32's normal numbers.
SY_FORCE_INLINE __m512 Exp(__m512 x) {
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504F)),
                                        _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  // ln 2 in two parts (Cody-Waite), so that x - n * ln 2 is exact to FP32.
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
  __m512 p = _mm512_set1_ps(1.9875691500e-4F);
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1F));
  p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1F));
  p = _mm512_add_ps(_mm512_fmadd_ps(p, _mm512_mul_ps(r, r), r), _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(p, n);
}

// 1 / x for 1 <= x <= 2^126, to about 1 ulp; NaN stays NaN. A guess from the exponent and three
// Newton steps: a fifth of what a division costs, and unlike VRCP14PS the same on every CPU.
SY_FORCE_INLINE __m512 Reciprocal(__m512 x) {
  const __m512 one = _mm512_set1_ps(1.0F);
  // Subtracting the bits negates the exponent; the constant also spreads the error of the fraction.
  __m512 r =
      _mm512_castsi512_ps(_mm512_sub_epi32(_mm512_set1_epi32(0x7ef311c7), _mm512_castps_si512(x)));
  r = _mm512_fmadd_ps(r, _mm512_fnmadd_ps(x, r, one), r);
  r = _mm512_fmadd_ps(r, _mm512_fnmadd_ps(x, r, one), r);
  return _mm512_fmadd_ps(r, _mm512_fnmadd_ps(x, r, one), r);
}

// x / (1 + exp(-x)). The argument of Exp is clamped to the range that it is made for.
SY_FORCE_INLINE __m512 Silu(__m512 x) {
  __m512 negated = _mm512_sub_ps(_mm512_setzero_ps(), x);
  // The second operand is what MIN and MAX return for a NaN: it must be the value.
  negated = _mm512_min_ps(_mm512_set1_ps(87.0F), negated);
  negated = _mm512_max_ps(_mm512_set1_ps(-87.0F), negated);
  return _mm512_mul_ps(x, Reciprocal(_mm512_add_ps(_mm512_set1_ps(1.0F), Exp(negated))));
}

// Sums of gate and of up in the columns from `first` on, a multiple of 16.
SY_FORCE_INLINE __m512 GateAffine(const KernelAffine& affine, std::int64_t first, __m512 sums) {
  return _mm512_fmadd_ps(sums, _mm512_load_ps(affine.gate_scale + first),
                         _mm512_load_ps(affine.gate_bias + first));
}
// Two functions and not one with a flag: a branch in the inner loop costs more than the repetition.
SY_FORCE_INLINE __m512 UpAffine(const KernelAffine& affine, std::int64_t first, __m512 sums) {
  return _mm512_fmadd_ps(sums, _mm512_load_ps(affine.up_scale + first),
                         _mm512_load_ps(affine.up_bias + first));
}

// The scales of sixteen outputs (packing.h's ScalesFrom) at the 128 k number `block`.
SY_FORCE_INLINE __m512 ScalesAt(const KernelScales& scales, std::int64_t block) {
  const float* at = scales.at + block * scales.width;
  return scales.width == 1 ? _mm512_set1_ps(*at) : _mm512_load_ps(at);
}

// The first `count` of 16 lanes; none when `count` <= 0, all from 16 on.
SY_FORCE_INLINE __mmask16 FirstLanes(std::int64_t count) {
  if (count >= 16) return 0xffff;
  if (count <= 0) return 0;
  return static_cast<__mmask16>((1U << count) - 1U);
}

}  // namespace switchyard
