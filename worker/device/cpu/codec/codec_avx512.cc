// The formulas of codec_kernels.h, 32 values at a time. A vector of 32 BF16 words is taken apart
// into its even and its odd elements, each widened in place to 16 FP32: no shuffle is needed on the
// way in, and codes go together again by a shift. Masked loads read zeros beyond a row's end, which
// change neither a largest magnitude nor a code.
#include <cstring>

#include "worker/device/cpu/codec/codec_kernels.h"
#include "worker/device/cpu/kernel/vector_avx512.h"

namespace switchyard {
namespace {

constexpr std::int64_t kWords = 32;  // BF16 words of a vector
constexpr std::int64_t kFp8Group = 128;
constexpr std::int64_t kNvfp4Group = 16;
constexpr std::int64_t kNvfp4Chunk = 256;  // sixteen blocks, a lane for the scale of each
constexpr std::uint32_t kInfinity = 0x7f80;
constexpr int kE4m3Nan = 0x7f;

struct EvenOdd {
  __m512 even;
  __m512 odd;
};

SY_FORCE_INLINE __mmask32 FirstWords(std::int64_t count) {
  if (count >= kWords) return 0xffffffffU;
  return static_cast<__mmask32>((std::uint64_t{1} << count) - 1);
}
SY_FORCE_INLINE std::int64_t Least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

SY_FORCE_INLINE float FloatOf(std::uint32_t bits) {
  return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(bits))));
}
SY_FORCE_INLINE std::uint32_t BitsOf(float value) {
  return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(_mm_set_ss(value))));
}

SY_FORCE_INLINE EvenOdd Widen(__m512i words) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(words, 16)),
          _mm512_castsi512_ps(_mm512_and_si512(words, _mm512_set1_epi32(~0xffff)))};
}

SY_FORCE_INLINE __m512i Magnitudes(__m512i words) {
  return _mm512_and_si512(words, _mm512_set1_epi16(0x7fff));
}

// The largest of 32 words, each below 0x8000. PHMINPOSUW finds the least of the complements.
SY_FORCE_INLINE std::uint32_t LargestWord(__m512i words) {
  const __m256i half =
      _mm256_max_epu16(_mm512_castsi512_si256(words), _mm512_extracti64x4_epi64(words, 1));
  const __m128i quarter =
      _mm_max_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const __m128i least = _mm_minpos_epu16(_mm_xor_si128(quarter, _mm_set1_epi32(-1)));
  return ~static_cast<std::uint32_t>(_mm_cvtsi128_si32(least)) & 0xffffU;
}

// BF16 of sixteen even and sixteen odd values, any NaN as 0x7fc0.
SY_FORCE_INLINE __m512i RoundBits(__m512 value) {
  const __m512i bits = _mm512_castps_si512(value);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
  return _mm512_mask_mov_epi32(rounded, _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q),
                               _mm512_set1_epi32(0x7fc00000));
}
SY_FORCE_INLINE __m512i Narrow(const EvenOdd& values) {
  return _mm512_mask_blend_epi16(0xaaaaaaaaU, _mm512_srli_epi32(RoundBits(values.even), 16),
                                 RoundBits(values.odd));
}

// Magnitudes rounded to few bits of fraction by the FPU itself: adding 2^shift times their own
// power of two (but at least 2^least) leaves no room for more. The steps in the sum, less those of
// what was added, are the low bits of a code, its exponent the high ones; `bias` puts right what
// all values have in common. So denormals need no path of their own.
struct Rounding {
  int least;          // the smallest exponent, with FP32's bias
  int shift;          // FP32's bits of fraction less the format's
  unsigned code_bit;  // FP32's bit that is the lowest one of a code
  [[nodiscard]] constexpr unsigned bias() const {
    return (static_cast<unsigned>(least) << (23 - code_bit)) + (static_cast<unsigned>(shift) << 23);
  }
  [[nodiscard]] constexpr float factor() const { return static_cast<float>(1U << shift); }
};
constexpr Rounding kE4m3 = {.least = 121, .shift = 20, .code_bit = 20};
constexpr Rounding kE2m1 = {.least = 127, .shift = 22, .code_bit = 22};

struct Rounded {
  __m512i exponent;
  __m512 sum;
};
SY_FORCE_INLINE Rounded RoundMagnitude(const Rounding& to, __m512 magnitude) {
  const __m512i exponent = _mm512_max_epu32(
      _mm512_and_si512(_mm512_castps_si512(magnitude), _mm512_set1_epi32(0x7f800000)),
      _mm512_set1_epi32(to.least << 23));
  return {exponent,
          _mm512_fmadd_ps(_mm512_castsi512_ps(exponent), _mm512_set1_ps(to.factor()), magnitude)};
}
// Codes still with their bias.
SY_FORCE_INLINE __m512i BiasedCodes(const Rounding& to, const Rounded& rounded) {
  return _mm512_add_epi32(_mm512_sub_epi32(_mm512_castps_si512(rounded.sum), rounded.exponent),
                          _mm512_srli_epi32(rounded.exponent, to.code_bit));
}
// Codes of even and odd magnitudes as 32 words.
SY_FORCE_INLINE __m512i CodeWords(const Rounding& to, const EvenOdd& magnitudes) {
  const __m512i even = BiasedCodes(to, RoundMagnitude(to, magnitudes.even));
  const __m512i odd = BiasedCodes(to, RoundMagnitude(to, magnitudes.odd));
  const auto bias = static_cast<int>(to.bias() + (to.bias() << 16));
  return _mm512_sub_epi32(_mm512_add_epi32(even, _mm512_slli_epi32(odd, 16)),
                          _mm512_set1_epi32(bias));
}
// code | (the value >> shift & sign), in each word
SY_FORCE_INLINE __m512i WithSign(__m512i codes, __m512i values, unsigned shift, short sign) {
  constexpr int kOrOfAnd = 0xf8;
  return _mm512_ternarylogic_epi32(codes, _mm512_srli_epi16(values, shift), _mm512_set1_epi16(sign),
                                   kOrOfAnd);
}
SY_FORCE_INLINE EvenOdd Scaled(__m512i words, __m512 factor) {
  const EvenOdd x = Widen(Magnitudes(words));
  return {_mm512_mul_ps(x.even, factor), _mm512_mul_ps(x.odd, factor)};
}

// 32 E4M3 codes of values whose scaled magnitude is at most 448: nothing saturates.
SY_FORCE_INLINE __m256i E4m3Of(__m512i words, __m512 factor) {
  const __m512i codes = CodeWords(kE4m3, Scaled(words, factor));
  return _mm512_cvtepi16_epi8(WithSign(codes, words, 8, 0x80));
}
// 32 E2M1 codes; lane i of sixteen has those of values 2i and 2i + 1 in its low byte.
SY_FORCE_INLINE __m512i E2m1Of(__m512i words, __m512 factor) {
  const __m512 most = _mm512_set1_ps(6.0F);
  EvenOdd x = Scaled(words, factor);
  x = {_mm512_min_ps(x.even, most), _mm512_min_ps(x.odd, most)};
  const __m512i codes = WithSign(CodeWords(kE2m1, x), words, 12, 0x8);
  return _mm512_or_si512(codes, _mm512_srli_epi32(codes, 12));
}

// The k-th 32 of `count` values; with `kFull` all of them exist and need no mask.
template <bool kFull>
SY_FORCE_INLINE __m512i LoadWords(const Bf16* values, std::int64_t count, int k) {
  if constexpr (kFull) return _mm512_loadu_si512(values + k * kWords);
  const std::int64_t left = count - k * kWords;
  if (left <= 0) return _mm512_setzero_si512();
  return _mm512_maskz_loadu_epi16(FirstWords(left), values + k * kWords);
}

// --- FP8 ----------------------------------------------------------------------------------------

struct Fp32Scales {
  static constexpr std::int64_t kBytes = 4;
  SY_FORCE_INLINE void StoreBits(std::uint32_t bits, std::byte* out) {
    std::memcpy(out, &bits, sizeof(bits));
  }
  SY_FORCE_INLINE void StoreNan(std::byte* out) { StoreBits(0x7fc00000U, out); }
  SY_FORCE_INLINE float Store(float amax, std::byte* out) {
    StoreBits(BitsOf(amax / 448.0F), out);
    return 448.0F / amax;
  }
  SY_FORCE_INLINE float Load(const std::byte* in) {
    std::uint32_t bits = 0;
    std::memcpy(&bits, in, sizeof(bits));
    return FloatOf(bits);
  }
};

struct Ue8m0Scales {
  static constexpr std::int64_t kBytes = 1;
  SY_FORCE_INLINE void StoreNan(std::byte* out) { *out = std::byte{0xff}; }
  // amax is at least 1e-4: neither the scale nor its inverse is a denormal.
  SY_FORCE_INLINE float Store(float amax, std::byte* out) {
    const std::uint32_t bits = BitsOf(amax / 448.0F);
    const std::uint32_t byte = (bits >> 23) + ((bits & 0x7fffffU) != 0 ? 1U : 0U);
    *out = static_cast<std::byte>(byte);
    return FloatOf((254U - byte) << 23);
  }
  SY_FORCE_INLINE float Load(const std::byte* in) {
    const auto byte = static_cast<std::uint32_t>(*in);
    if (byte == 0) return FloatOf(0x00400000U);
    return FloatOf(byte == 0xff ? 0x7fc00000U : byte << 23);
  }
};

template <bool kFull>
SY_FORCE_INLINE void StoreCodes(__m256i codes, std::byte* data, std::int64_t count, int k) {
  if constexpr (kFull) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(data + k * kWords), codes);
  } else if (count > k * kWords) {
    _mm256_mask_storeu_epi8(data + k * kWords, FirstWords(count - k * kWords), codes);
  }
}

template <typename Scales, bool kFull>
SY_FORCE_INLINE void EncodeFp8Group(const Bf16* values, std::int64_t count, std::byte* data,
                                    std::byte* scales) {
  const __m512i a = LoadWords<kFull>(values, count, 0);
  const __m512i b = LoadWords<kFull>(values, count, 1);
  const __m512i c = LoadWords<kFull>(values, count, 2);
  const __m512i d = LoadWords<kFull>(values, count, 3);
  const __m512i largest = _mm512_max_epu16(_mm512_max_epu16(Magnitudes(a), Magnitudes(b)),
                                           _mm512_max_epu16(Magnitudes(c), Magnitudes(d)));
  const std::uint32_t magnitude = LargestWord(largest);
  if (magnitude >= kInfinity) {
    Scales::StoreNan(scales);
    std::memset(data, kE4m3Nan, static_cast<std::size_t>(count));
    return;
  }
  const float amax = FloatOf(magnitude << 16);
  const __m512 factor = _mm512_set1_ps(Scales::Store(amax > 1e-4F ? amax : 1e-4F, scales));
  StoreCodes<kFull>(E4m3Of(a, factor), data, count, 0);
  StoreCodes<kFull>(E4m3Of(b, factor), data, count, 1);
  StoreCodes<kFull>(E4m3Of(c, factor), data, count, 2);
  StoreCodes<kFull>(E4m3Of(d, factor), data, count, 3);
}

template <typename Scales>
void EncodeFp8(const Bf16* row, std::int64_t hidden, float /*global_scale*/, std::byte* data,
               std::byte* scales) {
  std::int64_t at = 0;
  for (; at + kFp8Group <= hidden; at += kFp8Group, scales += Scales::kBytes) {
    EncodeFp8Group<Scales, true>(row + at, kFp8Group, data + at, scales);
  }
  if (at < hidden) EncodeFp8Group<Scales, false>(row + at, hidden - at, data + at, scales);
}

// 32 E4M3 codes as BF16: the exponent moves by a shift and a bias, the seven denormals and zero
// come from a table.
SY_FORCE_INLINE __m512i E4m3ToBf16(__m256i codes) {
  const __m512i words = _mm512_cvtepu8_epi16(codes);
  const __m512i magnitude = _mm512_and_si512(words, _mm512_set1_epi16(0x7f));
  const __m512i denormals = _mm512_castsi128_si512(
      _mm_setr_epi16(0x0000, 0x3b00, 0x3b80, 0x3bc0, 0x3c00, 0x3c20, 0x3c40, 0x3c60));
  __m512i value = _mm512_add_epi16(_mm512_slli_epi16(magnitude, 4), _mm512_set1_epi16(120 << 7));
  value = _mm512_mask_permutexvar_epi16(
      value, _mm512_cmplt_epu16_mask(magnitude, _mm512_set1_epi16(8)), magnitude, denormals);
  value =
      _mm512_mask_mov_epi16(value, _mm512_cmpeq_epi16_mask(magnitude, _mm512_set1_epi16(kE4m3Nan)),
                            _mm512_set1_epi16(0x7fc0));
  constexpr int kOrOfAnd = 0xf8;
  return _mm512_ternarylogic_epi32(value, _mm512_slli_epi16(words, 8),
                                   _mm512_set1_epi16(static_cast<short>(0x8000)), kOrOfAnd);
}

template <typename Scales>
void DecodeFp8(const std::byte* data, const std::byte* scales, std::int64_t hidden,
               float /*global_scale*/, Bf16* out) {
  for (std::int64_t at = 0; at < hidden; at += kWords) {
    const __m512 scale = _mm512_set1_ps(Scales::Load(scales + at / kFp8Group * Scales::kBytes));
    const __mmask32 lanes = FirstWords(hidden - at);
    const EvenOdd x = Widen(E4m3ToBf16(_mm256_maskz_loadu_epi8(lanes, data + at)));
    _mm512_mask_storeu_epi16(out + at, lanes,
                             Narrow({_mm512_mul_ps(x.even, scale), _mm512_mul_ps(x.odd, scale)}));
  }
}

// --- INT8 ---------------------------------------------------------------------------------------

// x / scale for one scale and many x: a product with the inverse, corrected by its own remainder
// (Markstein 1990). It rounds to the same integer as the division for every pair of BF16 numbers
// within the limits below, which the tests go through; outside them the remainder may be lost.
struct Quotient {
  __m512 scale;
  __m512 inverse;
  SY_FORCE_INLINE __m512 Of(const Quotient& by, __m512 x) {
    const __m512 guess = _mm512_mul_ps(x, by.inverse);
    return _mm512_fmadd_ps(_mm512_fnmadd_ps(guess, by.scale, x), by.inverse, guess);
  }
};
struct Division {
  __m512 scale;
  SY_FORCE_INLINE __m512 Of(const Division& by, __m512 x) { return _mm512_div_ps(x, by.scale); }
};
constexpr float kQuotientAmaxMin = 0x1p-60F;
constexpr float kQuotientAmaxMax = 0x1p100F;

// The low bytes of even and odd codes, in order.
SY_FORCE_INLINE __m256i JoinBytes(__m512i even, __m512i odd) {
  const __m512i low = _mm512_and_si512(even, _mm512_set1_epi32(0xff));
  return _mm512_cvtepi32_epi16(_mm512_or_si512(low, _mm512_slli_epi32(odd, 8)));
}

template <typename By>
SY_FORCE_INLINE void QuantizeInt8(const Bf16* row, std::int64_t hidden, const By& by,
                                  std::byte* data) {
  for (std::int64_t at = 0; at < hidden; at += kWords) {
    const __mmask32 lanes = FirstWords(hidden - at);
    const EvenOdd x = Widen(_mm512_maskz_loadu_epi16(lanes, row + at));
    const __m256i codes =
        JoinBytes(_mm512_cvtps_epi32(By::Of(by, x.even)), _mm512_cvtps_epi32(By::Of(by, x.odd)));
    _mm256_mask_storeu_epi8(data + at, lanes, codes);
  }
}

void EncodeInt8(const Bf16* row, std::int64_t hidden, float /*global_scale*/, std::byte* data,
                std::byte* scales) {
  __m512i largest = _mm512_setzero_si512();
  for (std::int64_t at = 0; at < hidden; at += kWords) {
    const __m512i words = _mm512_maskz_loadu_epi16(FirstWords(hidden - at), row + at);
    largest = _mm512_max_epu16(largest, Magnitudes(words));
  }
  const std::uint32_t magnitude = LargestWord(largest);
  const float amax = FloatOf(magnitude << 16);
  const float scale = magnitude < kInfinity ? amax / 127.0F : FloatOf(0x7fc00000U);
  Fp32Scales::StoreBits(BitsOf(scale), scales);
  if (magnitude >= kInfinity || magnitude == 0) {
    std::memset(data, 0, static_cast<std::size_t>(hidden));
  } else if (amax >= kQuotientAmaxMin && amax <= kQuotientAmaxMax) {
    const Quotient by = {_mm512_set1_ps(scale), _mm512_set1_ps(1.0F / scale)};
    QuantizeInt8(row, hidden, by, data);
  } else {
    QuantizeInt8(row, hidden, Division{_mm512_set1_ps(scale)}, data);
  }
}

void DecodeInt8(const std::byte* data, const std::byte* scales, std::int64_t hidden,
                float /*global_scale*/, Bf16* out) {
  const __m512 scale = _mm512_set1_ps(Fp32Scales::Load(scales));
  for (std::int64_t at = 0; at < hidden; at += kWords) {
    const __mmask32 lanes = FirstWords(hidden - at);
    const __m512i pairs = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi8(lanes, data + at));
    const __m512i even = _mm512_srai_epi32(_mm512_slli_epi32(pairs, 24), 24);
    const __m512i odd = _mm512_srai_epi32(_mm512_slli_epi32(pairs, 16), 24);
    _mm512_mask_storeu_epi16(out + at, lanes,
                             Narrow({_mm512_mul_ps(_mm512_cvtepi32_ps(even), scale),
                                     _mm512_mul_ps(_mm512_cvtepi32_ps(odd), scale)}));
  }
}

// --- NVFP4 --------------------------------------------------------------------------------------

// Lane b: the largest magnitude of block b of up to sixteen, in both halves.
template <bool kFull>
SY_FORCE_INLINE __m512i LargestOfBlocks(const Bf16* row, std::int64_t count) {
  // Lane 0 for even results, lane 8 for odd ones: one of each block of a vector.
  const __m512i from = _mm512_set1_epi64(std::int64_t{8} << 32);
  __m512i all = _mm512_setzero_si512();
#pragma GCC unroll 8
  for (int k = 0; k < kNvfp4Chunk / kWords; ++k) {
    __m512i words = Magnitudes(LoadWords<kFull>(row, count, k));
    words = _mm512_max_epu16(words, _mm512_rol_epi32(words, 16));
    words = _mm512_max_epu16(words, _mm512_shuffle_epi32(words, _MM_PERM_CDAB));
    words = _mm512_max_epu16(words, _mm512_shuffle_epi32(words, _MM_PERM_BADC));
    words = _mm512_max_epu16(words, _mm512_shuffle_i64x2(words, words, 0xb1));
    all = _mm512_mask_permutexvar_epi32(all, static_cast<__mmask16>(3U << (2 * k)), from, words);
  }
  return all;
}

// Lanes 0 to 7: lane 2k of `of`; lanes 8 to 15: lane 2k + 1.
SY_FORCE_INLINE __m512 TwoBlocks(__m512 of, int k) {
  const __m512i low = _mm512_set1_epi32(2 * k);
  return _mm512_permutexvar_ps(_mm512_mask_mov_epi32(low, 0xff00, _mm512_set1_epi32(2 * k + 1)),
                               of);
}

// Scales of up to sixteen blocks; returns what their values are multiplied by.
SY_FORCE_INLINE __m512 StoreBlockScales(__m512i largest, __mmask16 bad, std::int64_t blocks,
                                        float global_scale, std::byte* scales) {
  const __m512 global = _mm512_set1_ps(global_scale);
  const __m512 amax = _mm512_castsi512_ps(_mm512_slli_epi32(largest, 16));
  const __m512 exact = _mm512_div_ps(_mm512_mul_ps(global, amax), _mm512_set1_ps(6.0F));
  const Rounded rounded = RoundMagnitude(kE4m3, _mm512_min_ps(exact, _mm512_set1_ps(448.0F)));
  const __m512i biased = BiasedCodes(kE4m3, rounded);
  const __m512i codes = _mm512_mask_mov_epi32(
      _mm512_sub_epi32(biased, _mm512_set1_epi32(static_cast<int>(kE4m3.bias()))), bad,
      _mm512_set1_epi32(kE4m3Nan));
  _mm512_mask_cvtepi32_storeu_epi8(scales, FirstLanes(blocks), codes);
  // The rounded scale itself is the sum less what was added to it.
  const __m512 scale = _mm512_fnmadd_ps(_mm512_castsi512_ps(rounded.exponent),
                                        _mm512_set1_ps(kE4m3.factor()), rounded.sum);
  const __mmask16 nonzero = _mm512_cmp_ps_mask(scale, _mm512_setzero_ps(), _CMP_NEQ_UQ);
  return _mm512_maskz_div_ps(nonzero, global, scale);
}

// Up to sixteen blocks.
template <bool kFull>
SY_FORCE_INLINE void EncodeNvfp4Chunk(const Bf16* values, std::int64_t count, float global_scale,
                                      std::byte* data, std::byte* scales) {
  const std::int64_t blocks = (count + kNvfp4Group - 1) / kNvfp4Group;
  const __m512i largest = LargestOfBlocks<kFull>(values, count);
  const __mmask16 bad =
      _mm512_cmpge_epu32_mask(largest, _mm512_set1_epi32(static_cast<int>(kInfinity << 16)));
  const __m512 factors = StoreBlockScales(largest, bad, blocks, global_scale, scales);
#pragma GCC unroll 8
  for (int k = 0; k < kNvfp4Chunk / kWords; ++k) {
    const std::int64_t left = count - k * kWords;
    if (!kFull && left <= 0) break;
    const __m512i codes = E2m1Of(LoadWords<kFull>(values, count, k), TwoBlocks(factors, k));
    std::byte* out = data + k * kWords / 2;
    if constexpr (kFull) {
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm512_cvtepi32_epi8(codes));
    } else {
      _mm512_mask_cvtepi32_storeu_epi8(out, FirstLanes((left + 1) / 2), codes);
    }
  }
  for (unsigned rest = bad; rest != 0; rest &= rest - 1) {
    const std::int64_t begin = __builtin_ctz(rest) * kNvfp4Group;
    const std::int64_t bad_values = Least(kNvfp4Group, count - begin);
    std::memset(data + begin / 2, 0, static_cast<std::size_t>(bad_values + 1) / 2);
  }
}

void EncodeNvfp4(const Bf16* row, std::int64_t hidden, float global_scale, std::byte* data,
                 std::byte* scales) {
  std::int64_t at = 0;
  for (; at + kNvfp4Chunk <= hidden; at += kNvfp4Chunk) {
    EncodeNvfp4Chunk<true>(row + at, kNvfp4Chunk, global_scale, data + at / 2,
                           scales + at / kNvfp4Group);
  }
  if (at < hidden) {
    EncodeNvfp4Chunk<false>(row + at, hidden - at, global_scale, data + at / 2,
                            scales + at / kNvfp4Group);
  }
}

// Sixteen E4M3 codes as FP32.
SY_FORCE_INLINE __m512 E4m3ToFloats(__m128i codes) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(
      _mm512_cvtepu16_epi32(_mm512_castsi512_si256(E4m3ToBf16(_mm256_zextsi128_si256(codes)))),
      16));
}

// The values of the 16 codes in each of two blocks, as BF16: eight magnitudes a block are divided
// and rounded, and then negated.
SY_FORCE_INLINE __m512i CodeTable(__m512 scale, __m512 global) {
  const __m512 magnitudes = _mm512_setr_ps(0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F,  //
                                           0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F);
  const __m512i rounded = RoundBits(_mm512_div_ps(_mm512_mul_ps(magnitudes, scale), global));
  const __m256i narrow = _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded, 16));
  const __m512i twice = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 1, 0, 1, 2, 3, 2, 3),
                                                 _mm512_castsi256_si512(narrow));
  const __mmask32 is_number =
      _mm512_cmple_epu16_mask(Magnitudes(twice), _mm512_set1_epi16(kInfinity));
  const __mmask32 negative = 0xff00ff00U & is_number;
  return _mm512_mask_add_epi16(twice, negative, twice,
                               _mm512_set1_epi16(static_cast<short>(0x8000)));
}

void DecodeNvfp4(const std::byte* data, const std::byte* scales, std::int64_t hidden,
                 float global_scale, Bf16* out) {
  const __m512 global = _mm512_set1_ps(global_scale);
  const __m512i second_table = _mm512_inserti64x4(_mm512_setzero_si512(), _mm256_set1_epi16(16), 1);
  for (std::int64_t at = 0; at < hidden; at += kNvfp4Chunk) {
    const std::int64_t count = Least(kNvfp4Chunk, hidden - at);
    const __mmask16 blocks = FirstLanes((count + kNvfp4Group - 1) / kNvfp4Group);
    const __m512 block_scales =
        E4m3ToFloats(_mm_maskz_loadu_epi8(blocks, scales + at / kNvfp4Group));
    for (int k = 0; k * kWords < count; ++k) {
      const std::int64_t left = count - k * kWords;
      const __m512i bytes = _mm512_cvtepu8_epi32(
          _mm_maskz_loadu_epi8(FirstLanes((left + 1) / 2), data + (at + k * kWords) / 2));
      const __m512i codes = _mm512_and_si512(_mm512_or_si512(bytes, _mm512_slli_epi32(bytes, 12)),
                                             _mm512_set1_epi16(0xf));
      const __m512i table = CodeTable(TwoBlocks(block_scales, k), global);
      _mm512_mask_storeu_epi16(
          out + at + k * kWords, FirstWords(left),
          _mm512_permutexvar_epi16(_mm512_or_si512(codes, second_table), table));
    }
  }
}

}  // namespace

constinit const CodecKernels kAvx512CodecKernels = {
    .name = "avx512",
    .fp8 = {.encode = EncodeFp8<Fp32Scales>, .decode = DecodeFp8<Fp32Scales>},
    .fp8_ue8m0 = {.encode = EncodeFp8<Ue8m0Scales>, .decode = DecodeFp8<Ue8m0Scales>},
    .int8 = {.encode = EncodeInt8, .decode = DecodeInt8},
    .nvfp4 = {.encode = EncodeNvfp4, .decode = DecodeNvfp4}};

}  // namespace switchyard
