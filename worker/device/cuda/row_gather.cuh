// The warps that gather the rows of a group into the stages of a ring (stage_ring.cuh), wherever
// the rows lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/ptx.cuh"
#include "worker/device/cuda/stage_ring.cuh"

namespace switchyard::cuda {

// Stages that a gathering warp has under way before it publishes the oldest; fewer than a ring has.
constexpr int kGatherDepthMax = 4;

// The rows of a unit that a gathering thread copies: of each of its copies, and of its scales.
// kThreads: those of a stage.
template <int kRows, int kThreads = 64>
struct RowList {
  static constexpr int kStep = kThreads / 8;
  std::int32_t of_copy[kRows / kStep];
  std::int32_t of_scales;
  int rows;

  // Of `count` slots from `slot` on; thread i's copy j has row i / 8 + kStep j.
  __device__ __forceinline__ void Load(const std::int32_t* row_index, int slot, int count,
                                       int thread) {
    rows = count;
    const auto row_of = [&](int r) {
      if (r >= count) return 0;
      return row_index == nullptr ? slot + r : row_index[slot + r];
    };
#pragma unroll
    for (int j = 0; j < kRows / kStep; j++) of_copy[j] = row_of(thread / 8 + kStep * j);
    of_scales = row_of(thread);
  }
  [[nodiscard]] __device__ __forceinline__ std::int32_t OfCopy(int j) const { return of_copy[j]; }
};

// Of one warp: a row in each lane.
template <int kRows>
struct RowList<kRows, 32> {
  static_assert(kRows <= 32);
  std::int32_t of_scales;
  int rows;

  __device__ __forceinline__ void Load(const std::int32_t* row_index, int slot, int count,
                                       int thread) {
    rows = count;
    of_scales = 0;
    if (thread < count) of_scales = row_index == nullptr ? slot + thread : row_index[slot + thread];
  }
  [[nodiscard]] __device__ __forceinline__ std::int32_t OfCopy(int j) const {
    return __shfl_sync(~0U, of_scales, static_cast<int>(threadIdx.x % 32) / 8 + 4 * j);
  }
};

// Where a gathering thread reads a unit's rows.
template <int kRows, int kThreads = 64>
struct RowPointers {
  static constexpr int kCopies = kRows / (kThreads / 8);
  const std::byte* of_copy[kCopies];
  const std::byte* scales;
  int rows;

  __device__ __forceinline__ RowPointers(const RowList<kRows, kThreads>& list,
                                         const std::byte* base, std::int64_t stride,
                                         const std::byte* scale_base, std::int64_t scale_stride,
                                         int chunk)
      : scales(scale_base + list.of_scales * scale_stride), rows(list.rows) {
    // Kept in registers, else the base is loaded again for each copy.
    asm volatile("" : "+l"(scales));
#pragma unroll
    for (int j = 0; j < kCopies; j++) {
      of_copy[j] = base + list.OfCopy(j) * stride + chunk * 16;
      asm volatile("" : "+l"(of_copy[j]));
    }
  }
};

// The two warps that gather rows: thread i copies 16-byte chunk i % 8 of rows i / 8, i / 8 + 8, ...
// kParts: pieces of 128 bytes of each row in a stage, a tile of all rows each. kTurns: 2 if the
// warps take turns, a stage each, so that the work beside copying comes once for two stages;
// else 1.
template <int kRows, int kDepth = kGatherDepthMax, int kParts = 1, int kTurns = 1>
class RowGather {
  static constexpr int kThreads = 32 * kGatherWarps / kTurns;
  static constexpr int kStep = kThreads / 8;

 public:
  using List = RowList<kRows, kThreads>;
  using Pointers = RowPointers<kRows, kThreads>;

  // `thread`: of both warps.
  __device__ __forceinline__ RowGather(const StageRing& ring, int thread)
      : ring_(ring),
        thread_(thread % kThreads),
        row_(thread_ / 8),
        chunk_(thread_ % 8),
        ahead_(thread / kThreads) {
    if (ahead_ > 0) next_.Advance(ring.stages);
    published_ = next_;
  }

  __device__ __forceinline__ int thread() const { return thread_; }  // of a stage
  __device__ __forceinline__ int chunk() const { return chunk_; }

  // Fetches the blocks from `first` on, below `end`: those that are this warp's.
  template <int kScaleBytes>
  __device__ __forceinline__ void FetchBlocks(const Pointers& from, int first, int end) {
    int k = first + ahead_;
#pragma unroll 1
    for (; k < end; k += kTurns) Fetch<kScaleBytes>(from, k);
    ahead_ = k - end;
  }

  // Copies block `k` of the rows into the next stage, and kScaleBytes of each row's scales.
  template <int kScaleBytes>
  __device__ __forceinline__ void Fetch(const Pointers& from, int k) {
    WaitBarrier(ring_.Empty(next_.stage), next_.phase ^ 1);
    const std::uint32_t to = ring_.Rows(next_.stage) +
                             static_cast<std::uint32_t>(row_ * 128 + ((chunk_ ^ (row_ & 7)) << 4));
    // The swizzle goes by the row's number: four rows on it changes one bit.
    static_assert(kStep == 8 || kStep == 4);
    const std::uint32_t to_odd = kStep == 8 ? to : to ^ 64U;
#pragma unroll
    for (int part = 0; part < kParts; part++) {
#pragma unroll
      for (int j = 0; j < kRows / kStep; j++) {
        if (row_ + kStep * j >= from.rows) continue;
        CopyAsync16((j % 2 == 0 ? to : to_odd) + part * kRows * 128 + j * kStep * 128,
                    from.of_copy[j] + (k * kParts + part) * 128);
      }
    }
    const std::uint32_t scales_to =
        ring_.Scales(next_.stage) + static_cast<std::uint32_t>(thread_ * kScaleBytes);
    if (kScaleBytes != 0 && thread_ < from.rows) {
      if constexpr (kScaleBytes == 8) {
        CopyAsync8(scales_to, from.scales + k * 8);
      } else if constexpr (kScaleBytes == 4) {
        CopyAsync4(scales_to, from.scales + k * 4);
      }
    }
    CommitCopies();
    Advance(&next_);
    if (++pending_ > kDepth) {
      WaitCopies<kDepth>();
      Publish();
    }
  }

  // Publishes everything under way; before any wait for another CTA, which may wait for these rows.
  __device__ __forceinline__ void Flush() {
    WaitCopies<0>();
    while (pending_ > 0) Publish();
  }

 private:
  __device__ __forceinline__ void Advance(RingPosition* position) const {
    static_assert(kTurns == 1 || kTurns == 2);
    kTurns == 1 ? position->Advance(ring_.stages) : position->AdvanceByTwo(ring_.stages);
  }
  __device__ __forceinline__ void Publish() {
    FenceForTensorCores();
    ArriveOfWarp(ring_.Full(published_.stage));
    Advance(&published_);
    pending_--;
  }

  const StageRing& ring_;
  const int thread_;
  const int row_;
  const int chunk_;
  int ahead_;  // stages until this warp's next one
  RingPosition next_{};
  RingPosition published_{};
  int pending_ = 0;
};

}  // namespace switchyard::cuda
