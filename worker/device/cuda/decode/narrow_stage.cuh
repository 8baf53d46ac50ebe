// A warp's products of one stage of narrow weights and BF16 rows: 16 weight rows x 128 k, by the
// rows of a tile.
#pragma once

#include <cstdint>

#include "worker/device/cuda/decode/stage_ring.cuh"
#include "worker/device/cuda/decode/wgmma.cuh"
#include "worker/device/cuda/narrow_codes.cuh"
#include "worker/device/cuda/packed_weights.h"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

template <int kRows, MmaType kType>
class NarrowStage {
  static constexpr bool kInt4 = kType == MmaType::kInt4;
  static constexpr int kSums = kRows / 2;
  static constexpr int kBlockBytes = NarrowBlockBytes(WeightType::kInt4);
  static constexpr int kSteps = kNarrowK / kNarrowStep;

 public:
  // The object works on block `block` of each stage.
  __device__ __forceinline__ NarrowStage(const StageRing& ring, int block, int warp)
      : ring_(ring),
        warp_(warp),
        weights_at_(block * kBlockBytes),
        rows_at_(block * 2 * kRows * 128) {}

  // Adds the products of `stage` to the sums. `release` is called as soon as nothing reads the
  // stage any more.
  template <typename Release>
  __device__ __forceinline__ void Multiply(int stage, float (&sums)[kSums],
                                           const Release& release) const {
    Scales scales;
    Operand a;
    LoadScales(stage, scales);
    Expand(stage, a, scales);
    if constexpr (kInt4) {
      float part[kSums];
      Step(stage, part, a);
      release();
#pragma unroll
      for (int i = 0; i < kSums; i++) {
        sums[i] = __fmaf_rn(part[i], __uint_as_float(scales[i / 2 % 2].x), sums[i]);
      }
    } else {
      Step(stage, sums, a);
      release();
    }
  }

 private:
  __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }

  using Operand = std::uint32_t[kSteps][4];
  // Eight bytes of scales for each of the thread's two rows.
  using Scales = uint2[2];

  __device__ __forceinline__ void LoadScales(int stage, Scales& scales) const {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = warp_ * 16 + half * 8 + (lane() >> 2);
      const float2 both =
          LoadSharedFloat2((ring_.Weights(stage) + weights_at_) + kNarrowCodeBytes + row * 8);
      scales[half] = make_uint2(__float_as_uint(both.x), __float_as_uint(both.y));
    }
  }

  // The thread's part of the stage's weights.
  __device__ __forceinline__ void Expand(int stage, Operand& a, const Scales& scales) const {
    const std::uint32_t at = (ring_.Weights(stage) + weights_at_) +
                             static_cast<std::uint32_t>(NarrowWord(warp_, lane(), 0) * 4);
#pragma unroll
    for (int four = 0; four < kSteps / 4; four++) {
      const uint4 words = LoadShared128(at + four * 512);
      const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        std::uint32_t by[2];
#pragma unroll
        for (int half = 0; half < 2; half++) {
          by[half] =
              kInt4 ? scales[half].y : NarrowFactor(four == 0 ? scales[half].x : scales[half].y, i);
        }
#pragma unroll
        for (int j = 0; j < 4; j++) {
          a[four * 4 + i][j] =
              kInt4 ? ExpandInt4(word[i], j, by[j % 2]) : ExpandE2m1(word[i], j, by[j % 2]);
        }
      }
    }
  }

  __device__ __forceinline__ void Step(int stage, float (&into)[kSums], const Operand& a) const {
    const std::uint64_t rows = MmaDescriptor(UniformOf(ring_.Rows(stage) + rows_at_));
    FenceAccumulators();
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
      // Rows lie in two tiles of 64 k, 128 bytes of each row in one.
      MmaOfRegisters<kRows, MmaType::kBf16>::Step(
          into, a[step], rows + step / 4 * (kRows * 8) + step % 4 * 2, kInt4 ? step > 0 : 1);
    }
    CommitMma();
    WaitMma<0>();
    TouchAccumulators(into);
  }

  const StageRing& ring_;
  const int warp_;
  const int weights_at_;
  const int rows_at_;
};

}  // namespace switchyard::cuda
