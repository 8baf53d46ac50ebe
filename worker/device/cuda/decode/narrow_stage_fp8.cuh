// NarrowStage (narrow_stage.cuh) of INT4 weights and E4M3 rows.
//
// A weight v becomes the E4M3 value of 2 v + 1 (narrow_codes.cuh): what the ones add to a product
// is the sum of the row's codes, which comes with the row.
#pragma once

#include <cstdint>

#include "worker/device/cuda/decode/narrow_stage.cuh"
#include "worker/device/cuda/decode/stage_ring.cuh"
#include "worker/device/cuda/decode/wgmma.cuh"
#include "worker/device/cuda/narrow_codes.cuh"
#include "worker/device/cuda/packed_weights.h"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

template <int kRows>
class NarrowStage<kRows, MmaType::kInt4Fp8> {
  static constexpr int kSums = kRows / 2;
  static constexpr int kBlockBytes = NarrowBlockBytes(WeightType::kInt4Fp8);
  static constexpr int kSteps = 4;  // of 32 k
  using Mma = MmaOfRegisters<kRows, MmaType::kE4m3>;

 public:
  __device__ __forceinline__ NarrowStage(const StageRing& ring, int block, int warp)
      : ring_(ring),
        warp_(warp),
        weights_at_(block * kBlockBytes),
        rows_at_(block * kRows * 128),
        row_scales_at_(block * kRows * 8 + (threadIdx.x & 3) * 16) {
    asm volatile("" : "+r"(row_scales_at_));  // kept, not computed for each stage
  }

  // As in narrow_stage.cuh.
  template <typename Release>
  __device__ __forceinline__ void Multiply(int stage, float (&sums)[kSums],
                                           const Release& release) const {
    std::uint32_t a[kSteps][4];
    Expand(stage, a);
    const std::uint64_t rows = MmaDescriptor(UniformOf(ring_.Rows(stage) + rows_at_));
    float part[kSums];
    FenceAccumulators();
#pragma unroll
    for (int step = 0; step < kSteps; step++) Mma::Step(part, a[step], rows + 2 * step, step > 0);
    CommitMma();
    float4 of_rows[kRows / 8];  // loaded while the tensor cores work; two rows each
    const std::uint32_t at = ring_.Scales(stage) + row_scales_at_;
#pragma unroll
    for (int j = 0; j < kRows / 8; j++) of_rows[j] = LoadSharedFloat4(at + j * 64);
    const float2 of_weights =
        LoadSharedFloat2((ring_.Weights(stage) + weights_at_) + kNarrowCodeBytes +
                         Int4Fp8Scale(warp_ * 16 + static_cast<int>(lane() >> 2)) * 4);
    WaitMma<0>();
    TouchAccumulators(part);
    release();
#pragma unroll
    for (int i = 0; i < kSums; i++) {
      const float4& two = of_rows[i / 4];
      const float product =
          i % 2 == 0 ? __fmaf_rn(part[i], two.x, -two.y) : __fmaf_rn(part[i], two.z, -two.w);
      sums[i] = __fmaf_rn(product, i / 2 % 2 == 0 ? of_weights.x : of_weights.y, sums[i]);
    }
  }

 private:
  __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }

  // The thread's part of the stage's weights.
  __device__ __forceinline__ void Expand(int stage, std::uint32_t (&a)[kSteps][4]) const {
    const std::uint32_t at = (ring_.Weights(stage) + weights_at_) +
                             static_cast<std::uint32_t>(NarrowWord(warp_, lane(), 0) * 4);
#pragma unroll
    for (int two = 0; two < kSteps / 2; two++) {
      const uint4 words = LoadShared128(at + two * 512);
      const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < 8; i++) a[two * 2 + i / 4][i % 4] = ExpandInt4Fp8(word[i / 2], i % 2);
    }
  }

  const StageRing& ring_;
  const int warp_;
  const int weights_at_;
  const int rows_at_;
  std::uint32_t row_scales_at_;  // of the thread's two rows of the first eight
};

}  // namespace switchyard::cuda
