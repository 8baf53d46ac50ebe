// Sums of answers: eight columns of BF16 at a time, added in FP32.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>

namespace switchyard::cuda {

__device__ __forceinline__ float LowHalf(std::uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float HighHalf(std::uint32_t pair) {
  return __uint_as_float(pair & 0xffff0000U);
}
__device__ __forceinline__ std::uint32_t RoundedPair(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// Fused: a product and a sum are rounded once.
__device__ __forceinline__ void AddUnit(const uint4& words, float weight, float (&sums)[8]) {
  const std::uint32_t pairs[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sums[2 * i] = __fmaf_rn(weight, LowHalf(pairs[i]), sums[2 * i]);
    sums[2 * i + 1] = __fmaf_rn(weight, HighHalf(pairs[i]), sums[2 * i + 1]);
  }
}
__device__ __forceinline__ uint4 RoundedUnit(const float (&sums)[8]) {
  return make_uint4(RoundedPair(sums[0], sums[1]), RoundedPair(sums[2], sums[3]),
                    RoundedPair(sums[4], sums[5]), RoundedPair(sums[6], sums[7]));
}

}  // namespace switchyard::cuda
