// SwiGLU of two values, the same bits wherever it is computed: every operation is stated, so that
// none is contracted with its neighbors.
#pragma once

#include <cstdint>

namespace switchyard::cuda {

// silu(gate) * up. Exponential and reciprocal are those of the hardware, good to some 2^-22, before
// a rounding to BF16.
__device__ __forceinline__ float Swiglu(float gate, float up) {
  constexpr float kMinusLog2E = -1.4426950408889634F;
  float exponential;
  float reciprocal;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(__fmul_rn(gate, kMinusLog2E)));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(reciprocal) : "f"(__fadd_rn(1.0F, exponential)));
  return __fmul_rn(__fmul_rn(gate, reciprocal), up);
}

// Returns two neighbors, rounded to BF16, as they lie in memory: the first in the lower half.
__device__ __forceinline__ std::uint32_t SwigluPair(float gate0, float up0, float gate1,
                                                    float up1) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %2, %1;"
      : "=r"(pair)
      : "f"(Swiglu(gate0, up0)), "f"(Swiglu(gate1, up1)));
  return pair;
}

}  // namespace switchyard::cuda
