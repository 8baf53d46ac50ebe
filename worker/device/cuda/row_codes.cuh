// Sixteen values of BF16 as codes of the wire formats, and the scales of those: what the codecs
// (codec_encode.cu) and the exchange write. `largest`: the bits of the largest magnitude among the
// values of a scale.
#pragma once

#include <cstdint>

#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/row_access.cuh"

namespace switchyard::cuda {

struct Fp8Scale {
  bool finite;  // else all codes are NaN
  float value;
  float factor;  // 1 / value, as the codec rounds it
};
struct FullFp8Scale {
  static __device__ __forceinline__ Fp8Scale Of(std::uint32_t largest) {
    const bool finite = largest < kBf16Infinity;
    const float amax = fmaxf(kFp8AmaxMin, Bf16Value(largest));
    return {finite, finite ? __fdiv_rn(amax, kE4m3Largest) : __uint_as_float(kFloatNanBits),
            __fdiv_rn(kE4m3Largest, amax)};
  }
};
struct Pow2Fp8Scale {
  // A power of two far from the ends of the range: UE8M0 as its FP32 value.
  static __device__ __forceinline__ Fp8Scale Of(std::uint32_t largest) {
    const bool finite = largest < kBf16Infinity;
    const float amax = fmaxf(kFp8AmaxMin, Bf16Value(largest));
    const std::uint32_t exponent = Ue8m0RoundUp(__fdiv_rn(amax, kE4m3Largest));
    return {finite, finite ? Ue8m0Value(exponent) : __uint_as_float(kFloatNanBits),
            __uint_as_float((254U - exponent) << 23)};
  }
};

__device__ __forceinline__ void EncodeFp8Chunk(const Chunk& chunk, const Fp8Scale& scale,
                                               std::uint32_t (&words)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const std::uint32_t low = E4m3Pair(__fmul_rn(Bf16Value(chunk.Bits(4 * i)), scale.factor),
                                       __fmul_rn(Bf16Value(chunk.Bits(4 * i + 1)), scale.factor));
    const std::uint32_t high = E4m3Pair(__fmul_rn(Bf16Value(chunk.Bits(4 * i + 2)), scale.factor),
                                        __fmul_rn(Bf16Value(chunk.Bits(4 * i + 3)), scale.factor));
    words[i] = scale.finite ? low | high << 16 : kE4m3NanCode * 0x01010101U;
  }
}

// x / scale for the scale of a row and many x: a product with the inverse, corrected by its own
// remainder. For BF16 x and scale = amax / 127 with amax within the limits it rounds to the same
// integer as the division; beyond them the remainder may be lost
// (worker/device/cpu/codec/codec_avx512.cc).
struct Int8Scale {
  float value;
  float inverse;
  bool exact;      // amax is within the limits
  bool has_codes;  // else all codes are zero

  static __device__ __forceinline__ Int8Scale Of(std::uint32_t largest) {
    const float amax = Bf16Value(largest);
    const bool finite = largest < kBf16Infinity;
    const float value = finite ? __fdiv_rn(amax, 127.0F) : __uint_as_float(kFloatNanBits);
    return {value, __fdiv_rn(1.0F, value), amax >= 0x1p-60F && amax <= 0x1p100F,
            finite && largest != 0};
  }
  [[nodiscard]] __device__ __forceinline__ float Quotient(float x) const {
    if (!exact) return __fdiv_rn(x, value);
    const float guess = __fmul_rn(x, inverse);
    return __fmaf_rn(__fmaf_rn(-guess, value, x), inverse, guess);
  }
};

__device__ __forceinline__ void EncodeInt8Chunk(const Chunk& chunk, const Int8Scale& scale,
                                                std::uint32_t (&words)[4]) {
#pragma unroll
  for (std::uint32_t& word : words) word = 0;
  if (!scale.has_codes) return;
#pragma unroll
  for (int i = 0; i < kChunk; i++) {
    const float rounded = rintf(scale.Quotient(Bf16Value(chunk.Bits(i))));
    const int code = static_cast<int>(fminf(fmaxf(rounded, -128.0F), 127.0F));
    words[i / 4] |= (static_cast<std::uint32_t>(code) & 0xffU) << (i % 4 * 8);
  }
}

// Returns the scale's E4M3 code.
__device__ __forceinline__ std::uint32_t EncodeNvfp4Chunk(const Chunk& chunk, float global_scale,
                                                          std::uint32_t (&words)[2]) {
  const std::uint32_t largest = LargestMagnitude(chunk);
  const bool finite = largest < kBf16Infinity;
  const std::uint32_t scale =
      finite ? E4m3Code(__fdiv_rn(__fmul_rn(global_scale, Bf16Value(largest)), 6.0F))
             : kE4m3NanCode;
  const float factor = scale == 0 || !finite ? 0.0F : __fdiv_rn(global_scale, E4m3Value(scale));
  words[0] = words[1] = 0;
  if (!finite) return scale;
#pragma unroll
  for (int i = 0; i < kChunk; i++) {
    // Values beyond the row's end are zeros, and so are their codes.
    words[i / 8] |= E2m1Code(__fmul_rn(Bf16Value(chunk.Bits(i)), factor)) << (i % 8 * 4);
  }
  return scale;
}

}  // namespace switchyard::cuda
