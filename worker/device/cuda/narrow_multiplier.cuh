// The multiplying warps of a grouped product with narrow weights (narrow_weights.h): each thread
// expands its part of the weights to BF16 in registers, from which the tensor cores take them; rows
// come from shared memory.
//
// Expanding is the work, and a warp waits for much of it, so there are twice as many warps as for
// other weights: two teams of eight, of which one takes the even blocks of k and the other the odd
// ones. At the end of a unit the second team hands over its sums. The order of the sums depends on
// k only.
#pragma once

#include <cstdint>

#include "worker/device/cuda/gemm_arguments.h"
#include "worker/device/cuda/group_table.cuh"
#include "worker/device/cuda/narrow_codes.cuh"
#include "worker/device/cuda/ptx.cuh"
#include "worker/device/cuda/stage_ring.cuh"
#include "worker/device/cuda/wgmma.cuh"

namespace switchyard::cuda {

constexpr int kNarrowThreads = 640;
constexpr int kSecondTeamFirst = 12;  // its first warp, behind those that fetch
constexpr int kTeamThreads = 256;
constexpr int kSumsWritten = 5;  // barriers of both teams
constexpr int kSumsRead = 6;

template <int kRows, MmaType kType>
class NarrowMultiplier {
  static constexpr bool kInt4 = kType == MmaType::kInt4;
  static constexpr int kSums = kRows / 2;
  static constexpr int kSteps = kNarrowK / kNarrowStep;

 public:
  // `exchange`: kTeamThreads * kSums floats of shared memory.
  __device__ __forceinline__ NarrowMultiplier(const GemmArguments& args, const StageRing& ring,
                                              const GroupTable& table, std::uint32_t exchange,
                                              std::uint32_t)
      : args_(args),
        ring_(ring),
        table_(table),
        team_(threadIdx.x / 32 >= kSecondTeamFirst ? 1 : 0),
        thread_(static_cast<int>(threadIdx.x) - team_ * kSecondTeamFirst * 32),
        exchange_(exchange + static_cast<std::uint32_t>(thread_ * 4)) {}

  __device__ __forceinline__ void Run(UnitWalk walk, int dropped) {
    if (team_ == 1) at_.Advance(ring_.stages);
    for (int i = team_; i < dropped; i += 2) {
      WaitBarrier(ring_.Full(at_.stage), at_.phase);
      Release();
    }
    // Whether the stages before the unit are an odd number: its first block is the other team's
    // then.
    int odd = dropped % 2;
    const int units = walk.count();
    bool first = true;
    for (int index = static_cast<int>(blockIdx.x); index < units; index += gridDim.x) {
      const Unit unit = walk.Seek(index);
#pragma unroll
      for (float& sum : sums_) sum = 0.0F;
#pragma unroll 1
      for (int k = team_ ^ odd; k < args_.k_blocks; k += 2) {
        WaitBarrier(ring_.Full(at_.stage), at_.phase);
        Block();
      }
      odd ^= args_.k_blocks % 2;
      if (team_ == 1) {
        HandOver(first);
      } else {
        Take(index + static_cast<int>(gridDim.x) >= units);
        Store(unit);
      }
      first = false;
    }
  }

 private:
  __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }
  __device__ __forceinline__ int warp() const { return thread_ / 32; }  // of the team

  // Gives the stage back and goes to the team's next one.
  __device__ __forceinline__ void Release() {
    ArriveOfWarp(ring_.Empty(at_.stage));
    at_.Advance(ring_.stages);
    at_.Advance(ring_.stages);
  }

  using Operand = std::uint32_t[kSteps][4];
  // Eight bytes of scales for each of the thread's two rows.
  using Scales = uint2[2];

  __device__ __forceinline__ void LoadScales(Scales& scales) const {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int row = warp() * 16 + half * 8 + (lane() >> 2);
      const float2 both = LoadSharedFloat2(ring_.Weights(at_.stage) + kNarrowCodeBytes + row * 8);
      scales[half] = make_uint2(__float_as_uint(both.x), __float_as_uint(both.y));
    }
  }

  // The thread's part of the stage's weights.
  __device__ __forceinline__ void Expand(Operand& a, const Scales& scales) const {
    const std::uint32_t at =
        ring_.Weights(at_.stage) + static_cast<std::uint32_t>(NarrowWord(warp(), lane(), 0) * 4);
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

  __device__ __forceinline__ void Multiply(float (&into)[kSums], const Operand& a) {
    const std::uint64_t rows = MmaDescriptor(ring_.Rows(at_.stage));
    FenceAccumulators();
#pragma unroll
    for (int step = 0; step < kSteps; step++) {
      // Rows lie in two tiles of 64 k, 128 bytes of each row in one.
      MmaOfRegisters<kRows>::Step(into, a[step], rows + step / 4 * (kRows * 8) + step % 4 * 2,
                                  kInt4 ? step > 0 : 1);
    }
    CommitMma();
    WaitMma<0>();
    TouchAccumulators(into);
    Release();
  }

  // The products of a stage, which is full.
  __device__ __forceinline__ void Block() {
    Scales scales;
    Operand a;
    LoadScales(scales);
    Expand(a, scales);
    if constexpr (kInt4) {
      float part[kSums];
      Multiply(part, a);
#pragma unroll
      for (int i = 0; i < kSums; i++) {
        sums_[i] = __fmaf_rn(part[i], __uint_as_float(scales[i / 2 % 2].x), sums_[i]);
      }
    } else {
      Multiply(sums_, a);
    }
  }

  // The second team does not wait for the first one, unless that has not read its last sums yet.
  __device__ __forceinline__ void HandOver(bool first) const {
    if (!first) SyncNamed(kSumsRead, 2 * kTeamThreads);
#pragma unroll
    for (int i = 0; i < kSums; i++) {
      StoreShared32(exchange_ + i * kTeamThreads * 4, __float_as_uint(sums_[i]));
    }
    ArriveNamed(kSumsWritten, 2 * kTeamThreads);
  }
  __device__ __forceinline__ void Take(bool last) {
    SyncNamed(kSumsWritten, 2 * kTeamThreads);
#pragma unroll
    for (int i = 0; i < kSums; i++) {
      sums_[i] = __fadd_rn(sums_[i], LoadSharedFloat(exchange_ + i * kTeamThreads * 4));
    }
    if (!last) ArriveNamed(kSumsRead, 2 * kTeamThreads);
  }

  __device__ __forceinline__ void Store(const Unit& unit) const {
    const int first = unit.row_tile * kRows;
    const int rows = min(kRows, table_.counts[unit.group] - first);
    const int slot = table_.offsets[unit.group] + first;
    const int column = unit.weight_tile * kNarrowRows + warp() * 16 + (lane() >> 2);
#pragma unroll
    for (int i = 0; i < kSums; i++) {
      const int row = 8 * (i >> 2) + 2 * (lane() & 3) + (i & 1);
      if (row >= rows) continue;
      auto* out = reinterpret_cast<float*>(args_.out + (slot + row) * args_.out_stride);
      out[column + 8 * ((i >> 1) & 1)] = kInt4 ? sums_[i] : sums_[i] * kNarrowUnit;
    }
  }

  const GemmArguments& args_;
  const StageRing& ring_;
  const GroupTable& table_;
  const int team_;
  const int thread_;  // of the team
  const std::uint32_t exchange_;
  RingPosition at_{};
  float sums_[kSums];
};

}  // namespace switchyard::cuda
