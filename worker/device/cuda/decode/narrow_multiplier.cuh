// The multiplying warps of a grouped product with narrow weights (narrow_weights.h): each thread
// expands its part of the weights in registers, from which the tensor cores take them; rows come
// from shared memory.
//
// Expanding is the work, and a warp waits for much of it, so there are twice as many warps as for
// other weights: two teams of eight, of which one takes the even blocks of k and the other the odd
// ones: one each of a stage. At the end of a unit each leaves its sums in shared memory and goes
// on; a warp of its own adds them up and stores them. The order of the sums depends on k only.
#pragma once

#include <cstdint>

#include "worker/device/cuda/decode/gemm_arguments.h"
#include "worker/device/cuda/decode/group_table.cuh"
#include "worker/device/cuda/decode/narrow_stage.cuh"
#include "worker/device/cuda/decode/narrow_stage_fp8.cuh"
#include "worker/device/cuda/decode/stage_ring.cuh"
#include "worker/device/cuda/decode/wgmma.cuh"
#include "worker/device/cuda/narrow_codes.cuh"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

constexpr int kNarrowThreads = 640;
constexpr int kNarrowWarps = 16;      // that multiply
constexpr int kSecondTeamFirst = 12;  // its first warp, behind those that fetch
constexpr int kTeamThreads = 256;
constexpr int kStoringWarp = 11;
// Barriers of the first team and the storing warp; those of the second team follow.
constexpr int kSumsWritten = 5;
constexpr int kSumsRead = 7;
constexpr int kSumsThreads = kTeamThreads + 32;

// The sums of a unit: a tile of rows x 128 columns of each team, rows padded for the banks.
template <int kRows>
struct NarrowSums {
  static constexpr int kRowBytes = (kNarrowRows + 4) * 4;
  static constexpr int kTeamBytes = kRows * kRowBytes;
};

template <int kRows, MmaType kType>
class NarrowMultiplier {
  static constexpr int kSums = kRows / 2;

 public:
  // `sums`: shared memory for NarrowSums of both teams.
  __device__ __forceinline__ NarrowMultiplier(const GemmArguments& args, const StageRing& ring,
                                              const GroupTable&, std::uint32_t sums, std::uint32_t)
      : args_(args),
        ring_(ring),
        team_(threadIdx.x / 32 >= kSecondTeamFirst ? 1 : 0),
        thread_(static_cast<int>(threadIdx.x) - team_ * kSecondTeamFirst * 32),
        sums_at_(sums + static_cast<std::uint32_t>(team_ * NarrowSums<kRows>::kTeamBytes)),
        stage_(ring, team_, thread_ / 32) {}

  __device__ __forceinline__ void Run(UnitWalk walk, int dropped) {
    for (int i = 0; i < dropped; i++) {
      WaitBarrier(ring_.Full(at_.stage), at_.phase);
      Release();
    }
    const int units = walk.count();
    const int cta = static_cast<int>(blockIdx.x);
    for (int index = cta; index < units; index += gridDim.x) {
#pragma unroll
      for (float& sum : sums_) sum = 0.0F;
#pragma unroll 1
      for (int k = team_; k < args_.k_blocks; k += 2) Block();
      if (team_ == 1 && args_.k_blocks % 2 != 0) {  // nothing of the last stage
        WaitBarrier(ring_.Full(at_.stage), at_.phase);
        Release();
      }
      if (index > cta) SyncNamed(kSumsRead + team_, kSumsThreads);
      LeaveSums();
      ArriveNamed(kSumsWritten + team_, kSumsThreads);
    }
  }

 private:
  __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }
  __device__ __forceinline__ int warp() const { return thread_ / 32; }  // of the team

  // Gives the stage back and goes to the next one.
  __device__ __forceinline__ void Release() {
    ArriveOfWarp(ring_.Empty(at_.stage));
    at_.Advance(ring_.stages);
  }

  // Adds the products of the next stage.
  __device__ __forceinline__ void Block() {
    WaitBarrier(ring_.Full(at_.stage), at_.phase);
    stage_.Multiply(at_.stage, sums_, [this] { Release(); });
  }

  __device__ __forceinline__ void LeaveSums() const {
    const std::uint32_t at =
        sums_at_ + static_cast<std::uint32_t>((warp() * 16 + (lane() >> 2)) * 4);
#pragma unroll
    for (int i = 0; i < kSums; i++) {
      const int row = 8 * (i >> 2) + 2 * (lane() & 3) + (i & 1);
      StoreShared32(
          at + static_cast<std::uint32_t>(row * NarrowSums<kRows>::kRowBytes) + 32 * ((i >> 1) & 1),
          __float_as_uint(sums_[i]));
    }
  }

  const GemmArguments& args_;
  const StageRing& ring_;
  const int team_;
  const int thread_;  // of the team
  const std::uint32_t sums_at_;
  const NarrowStage<kRows, kType> stage_;
  RingPosition at_{};
  float sums_[kSums];
};

// By the storing warp: the sums of all units, a row of 512 bytes at a time.
template <int kRows, MmaType kType>
__device__ __forceinline__ void StoreNarrowSums(const GemmArguments& args, const GroupTable& table,
                                                UnitWalk walk, std::uint32_t sums) {
  const std::uint32_t at = sums + threadIdx.x % 32 * 16;
  const int units = walk.count();
  for (int index = static_cast<int>(blockIdx.x); index < units; index += gridDim.x) {
    const Unit unit = walk.Seek(index);
    const int first = unit.row_tile * kRows;
    const int rows = min(kRows, table.counts[unit.group] - first);
    std::byte* out = args.out + (table.offsets[unit.group] + first) * args.out_stride +
                     unit.weight_tile * kNarrowRows * 4 + threadIdx.x % 32 * 16;
    SyncNamed(kSumsWritten, kSumsThreads);
    SyncNamed(kSumsWritten + 1, kSumsThreads);
#pragma unroll 4
    for (int row = 0; row < rows; row++, out += args.out_stride) {
      const std::uint32_t from =
          at + static_cast<std::uint32_t>(row * NarrowSums<kRows>::kRowBytes);
      const float4 a = LoadSharedFloat4(from);
      const float4 b = LoadSharedFloat4(from + NarrowSums<kRows>::kTeamBytes);
      constexpr float kUnit = kType == MmaType::kE2m1 ? kNarrowUnit : 1.0F;
      *reinterpret_cast<float4*>(out) =
          make_float4(__fadd_rn(a.x, b.x) * kUnit, __fadd_rn(a.y, b.y) * kUnit,
                      __fadd_rn(a.z, b.z) * kUnit, __fadd_rn(a.w, b.w) * kUnit);
    }
    if (index + static_cast<int>(gridDim.x) >= units) return;
    ArriveNamed(kSumsRead, kSumsThreads);
    ArriveNamed(kSumsRead + 1, kSumsThreads);
  }
}

}  // namespace switchyard::cuda
