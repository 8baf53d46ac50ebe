// The codecs' arithmetic, one value at a time: twins of fp8.h, fp4.h and bf16.h of core/format.
// Each operation is a single IEEE one, rounded to nearest even: nothing here may be contracted,
// flushed or approximated, or bytes would differ from the CPU's.
#pragma once

#include <cstdint>

#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

constexpr std::uint32_t kBf16Infinity = 0x7f80;
constexpr std::uint32_t kBf16Nan = 0x7fc0;
constexpr std::uint32_t kFloatNanBits = 0x7fc00000;
constexpr std::uint32_t kE4m3NanCode = 0x7f;
constexpr float kE4m3Largest = 448.0F;
constexpr float kFp8AmaxMin = 1e-4F;

__device__ __forceinline__ float Bf16Value(std::uint32_t bits) {
  return __uint_as_float(bits << 16);
}

// BF16 of a decoded value: any NaN becomes kBf16Nan.
__device__ __forceinline__ std::uint32_t RoundDecoded(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return kBf16Nan;
  return (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
}

__device__ __forceinline__ std::uint32_t E4m3Code(float value) {
  return E4m3Pair(value, 0.0F) & 0xffU;
}

__device__ __forceinline__ float E4m3Value(std::uint32_t code) {
  const __half_raw half = __nv_cvt_fp8_to_halfraw(static_cast<__nv_fp8_storage_t>(code), __NV_E4M3);
  return __half2float(__half(half));
}

// The values of two codes, the low one first.
__device__ __forceinline__ float2 E4m3PairValues(std::uint32_t codes) {
  const __half2_raw halves =
      __nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(codes), __NV_E4M3);
  return __half22float2(__half2(halves));
}

// UE8M0: the least power of two that is not below `value`, which is a normal number here.
__device__ __forceinline__ std::uint32_t Ue8m0RoundUp(float value) {
  const std::uint32_t bits = __float_as_uint(value);
  return (bits >> 23) + ((bits & 0x7fffffU) != 0 ? 1U : 0U);
}
__device__ __forceinline__ float Ue8m0Value(std::uint32_t byte) {
  if (byte == 0) return __uint_as_float(0x00400000U);  // 2^-127, a denormal
  return __uint_as_float(byte == 0xff ? kFloatNanBits : byte << 23);
}

// To nearest, ties to an even code, saturating at 6. `value` is no NaN.
__device__ __forceinline__ std::uint32_t E2m1Code(float value) {
  const std::uint32_t sign = (__float_as_uint(value) >> 28) & 0x8U;
  const float magnitude = fminf(fabsf(value), 6.0F);
  // Below 1 a code counts steps of 0.5, the ulp of 2^22; from there on its bits are those of FP32.
  constexpr float kShift = 4194304.0F;
  const std::uint32_t steps =
      __float_as_uint(__fadd_rn(magnitude, kShift)) - __float_as_uint(kShift);
  const std::uint32_t bits = __float_as_uint(magnitude);
  const std::uint32_t rounded = ((bits + 0x1fffffU + ((bits >> 22) & 1U)) >> 22) - (126U << 1);
  return sign | (magnitude < 1.0F ? steps : rounded);
}
__device__ __forceinline__ float E2m1Value(std::uint32_t code) {
  const std::uint32_t magnitude = code & 0x7U;
  const std::uint32_t bits = magnitude < 2 ? magnitude * 0x3f000000U : (magnitude + 252U) << 22;
  return __uint_as_float(bits | (code & 0x8U) << 28);
}

}  // namespace switchyard::cuda
