// The two warpgroups that multiply in a grouped product at decode, with weights that the tensor
// cores take as they are; narrow_multiplier.cuh has the others.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/decode/gemm_arguments.h"
#include "worker/device/cuda/decode/gemm_shape.cuh"
#include "worker/device/cuda/decode/group_table.cuh"
#include "worker/device/cuda/decode/stage_ring.cuh"
#include "worker/device/cuda/decode/sum_carry.cuh"
#include "worker/device/cuda/decode/tile_store.cuh"
#include "worker/device/cuda/decode/unit_pieces.cuh"
#include "worker/device/cuda/decode/wgmma.cuh"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

// Scales of weight blocks along k, a block in each lane, fetched 32 blocks ahead.
template <int kCount>
struct WeightScales {
  float now[kCount];
  float next[kCount];
  const float* at[kCount];

  // Each lane fetches the scales of one block of k: `from` and the 31 after it, below `end`.
  __device__ __forceinline__ void Prefetch(int from, int end) {
    const int block = from + static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < kCount; i++) next[i] = block < end ? __ldg(at[i] + block) : 0.0F;
  }
  __device__ __forceinline__ void Take() {
#pragma unroll
    for (int i = 0; i < kCount; i++) now[i] = next[i];
  }
};

template <int kRows, MmaType kType, int kBlocks, Epilogue kEpilogue, bool kCuts>
class Multiplier {
  using Shape = GemmShape<kRows, kType, kBlocks, kEpilogue>;
  using Sum = MmaSum<kType>;
  using Carry = SumCarry<kBlocks * Shape::kAccumulators>;
  static constexpr int kScaleRows = kEpilogue == Epilogue::kSwiglu ? 2 : 1;

 public:
  __device__ __forceinline__ Multiplier(const GemmArguments& args, const StageRing& ring,
                                        const GroupTable& table, std::uint32_t transposed,
                                        std::uint32_t largest)
      : args_(args), ring_(ring), table_(table), store_(args, transposed, largest) {}

  // `piece`: the first one of `walk`; `works`: there is one.
  __device__ __forceinline__ void Run(bool works, Piece piece, PieceWalk<kCuts> walk, int dropped) {
    for (int i = 0; i < dropped; i++) {
      WaitBarrier(ring_.Full(at_.stage), at_.phase);
      Release();
    }
    if (!works) return;
    PointScales(piece.unit);
    scales_.Prefetch(piece.first, piece.end);
    bool more = true;
    while (more) {
      const Piece now = piece;
      more = walk.Next(piece);
      const int rows = min(kRows, table_.counts[now.unit.group] - now.unit.row_tile * kRows);
      const int slot = table_.offsets[now.unit.group] + now.unit.row_tile * kRows;
      store_.LoadRowScales(slot, rows);
      Begin(now.first);
      Accumulate(now, piece, more);
      if (kCuts && now.end < args_.k_blocks) {
        HandOnSums();
      } else {
        store_.Store(sums_, now.unit.weight_tile, slot, rows);
      }
    }
  }

 private:
  __device__ __forceinline__ int group_of_warps() const { return threadIdx.x >> 7; }
  __device__ __forceinline__ int lane() const { return threadIdx.x & 31; }

  __device__ __forceinline__ void Release() {
    ArriveOfWarp(ring_.Empty(at_.stage));
    at_.Advance(ring_.stages);
  }

  __device__ __forceinline__ void PointScales(const Unit& unit) {
    if constexpr (Shape::kFp8) {
      const std::int64_t k = args_.k_blocks;
      const int tiles = args_.weight_tiles;
      if constexpr (kEpilogue == Epilogue::kSwiglu) {
        const float* of_group = args_.weight_scales + unit.group * (2 * tiles * k);
        scales_.at[0] = of_group + unit.weight_tile * k;
        scales_.at[1] = of_group + (tiles + unit.weight_tile) * k;
      } else {
        const int block = unit.weight_tile * kBlocks + (kBlocks == 2 ? group_of_warps() : 0);
        const float* of_group =
            args_.weight_scales + static_cast<std::int64_t>(unit.group) * tiles * kBlocks * k;
        if constexpr (kEpilogue == Epilogue::kFp32) {
          if (args_.scales_of_group != nullptr) of_group = args_.scales_of_group[unit.group];
        }
        scales_.at[0] = of_group + block * k;
      }
    }
  }

  __device__ __forceinline__ void Start(Sum (&into)[kBlocks][Shape::kAccumulators]) {
    const std::uint64_t rows = MmaDescriptor(ring_.Rows(at_.stage));
    FenceAccumulators();
#pragma unroll
    for (int b = 0; b < kBlocks; b++) {
      const std::uint64_t weights =
          MmaDescriptor(ring_.Weights(at_.stage) + (group_of_warps() * kBlocks + b) * 8192);
#pragma unroll
      for (int step = 0; step < 4; step++) {
        Mma<kRows, kType>::Step(into[b], weights + 2 * step, rows + 2 * step,
                                Shape::kFp8 ? step > 0 : 1);
      }
    }
    CommitMma();
  }
  __device__ __forceinline__ void Wait(Sum (&into)[kBlocks][Shape::kAccumulators]) {
    WaitMma<0>();
#pragma unroll
    for (int b = 0; b < kBlocks; b++) TouchAccumulators(into[b]);
  }

  // The sums of a unit before its block `first`.
  __device__ __forceinline__ void Begin(int first) {
    if (kCuts && first > 0) {
      TakeSums();
      return;
    }
#pragma unroll
    for (int b = 0; b < kBlocks; b++) {
#pragma unroll
      for (Sum& sum : sums_[b]) sum = 0;
    }
  }

  __device__ __forceinline__ void TakeSums() {
    Carry carry(args_.carry, static_cast<int>(blockIdx.x) - 1);
    carry.Await();
#pragma unroll
    for (int b = 0; b < kBlocks; b++) {
#pragma unroll
      for (int i = 0; i < Shape::kAccumulators; i++) {
        sums_[b][i] = carry.template Take<Sum>(b * Shape::kAccumulators + i);
      }
    }
    carry.Clear();
  }
  __device__ __forceinline__ void HandOnSums() {
    Carry carry(args_.carry, static_cast<int>(blockIdx.x));
#pragma unroll
    for (int b = 0; b < kBlocks; b++) {
#pragma unroll
      for (int i = 0; i < Shape::kAccumulators; i++) {
        carry.Leave(b * Shape::kAccumulators + i, sums_[b][i]);
      }
    }
    carry.Announce();
  }

  // Adds the products of a piece, and fetches the first scales of the `next` one if there is
  // `more`.
  __device__ __forceinline__ void Accumulate(const Piece& piece, const Piece& next, bool more) {
    const int blocks = piece.end - piece.first;
#pragma unroll 1
    for (int k = 0; k < blocks; k++) {
      if constexpr (Shape::kFp8) {
        if (k % 32 == 0) {
          scales_.Take();
          if (k + 32 < blocks) {
            scales_.Prefetch(piece.first + k + 32, piece.end);
          } else if (more) {
            PointScales(next.unit);
            scales_.Prefetch(next.first, next.end);
          }
        }
      }
      WaitBarrier(ring_.Full(at_.stage), at_.phase);
      if constexpr (Shape::kFp8) {
        AddScaled(k % 32);
      } else {
        Start(sums_);
        Wait(sums_);
        Release();
      }
    }
  }

  __device__ __forceinline__ void AddScaled(int block) {
    float part[kBlocks][Shape::kAccumulators];
    Start(part);
    float2 of_rows[kRows / 8];  // loaded while the tensor cores work
    const std::uint32_t at = ring_.Scales(at_.stage) + (lane() & 3) * 8;
#pragma unroll
    for (int j = 0; j < kRows / 8; j++) of_rows[j] = LoadSharedFloat2(at + j * 32);
    float of_weights[kScaleRows];
#pragma unroll
    for (int i = 0; i < kScaleRows; i++) {
      of_weights[i] = __shfl_sync(~0U, scales_.now[i], block);
    }
    Wait(part);
    Release();
#pragma unroll
    for (int b = 0; b < kBlocks; b++) {
      const float w = of_weights[kScaleRows == 2 ? b : 0];
#pragma unroll
      for (int j = 0; j < kRows / 8; j++) {
        const float x = of_rows[j].x * w;
        const float y = of_rows[j].y * w;
        // Stated one by one: the products of prefill give the same bits.
        sums_[b][4 * j] = __fmaf_rn(part[b][4 * j], x, sums_[b][4 * j]);
        sums_[b][4 * j + 1] = __fmaf_rn(part[b][4 * j + 1], y, sums_[b][4 * j + 1]);
        sums_[b][4 * j + 2] = __fmaf_rn(part[b][4 * j + 2], x, sums_[b][4 * j + 2]);
        sums_[b][4 * j + 3] = __fmaf_rn(part[b][4 * j + 3], y, sums_[b][4 * j + 3]);
      }
    }
  }

  const GemmArguments& args_;
  const StageRing& ring_;
  const GroupTable& table_;
  TileStore<kRows, kType, kBlocks, kEpilogue> store_;
  RingPosition at_{};
  WeightScales<kScaleRows> scales_{};
  Sum sums_[kBlocks][Shape::kAccumulators];
};

}  // namespace switchyard::cuda
