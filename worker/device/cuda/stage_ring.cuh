// The ring of shared-memory stages between the warps that fetch and the warps that multiply.
//
// A stage holds 128 bytes of k, or 128 narrow weights: a tile of weights (one bulk copy) and a tile
// of rows with their scales (asynchronous copies by two warps). It is full when the bulk copy and
// both warps have arrived, empty again when all eight multiplying warps have. Every role walks the
// stages in the same order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/ptx.cuh"
#include "worker/device/cuda/warp_arrivals.h"

namespace switchyard::cuda {

constexpr int kMultiplyingWarps = 8;
constexpr int kGatherWarps = 2;
constexpr int kGatherFirst = 288;  // the first gathering thread, after the streaming warp
// Stages that a gathering warp has under way before it publishes the oldest; fewer than a ring has.
constexpr int kGatherDepthMax = 4;

// The arrival counts for the whole warp: __syncwarp orders what its lanes did before it.
__device__ __forceinline__ void ArriveOfWarp(std::uint32_t barrier) {
  __syncwarp();
  if (static_cast<int>(threadIdx.x % 32) < kArrivalsOfWarp) Arrive(barrier);
}

struct StageRing {
  std::uint32_t stages_at;  // 1024-byte aligned
  std::uint32_t scales_at;
  std::uint32_t full_at;
  std::uint32_t empty_at;
  int stage_bytes;
  int weight_bytes;
  int scale_bytes;
  int stages;

  __device__ __forceinline__ std::uint32_t Weights(int s) const {
    return stages_at + static_cast<std::uint32_t>(s * stage_bytes);
  }
  __device__ __forceinline__ std::uint32_t Rows(int s) const {
    return Weights(s) + static_cast<std::uint32_t>(weight_bytes);
  }
  __device__ __forceinline__ std::uint32_t Scales(int s) const {
    return scales_at + static_cast<std::uint32_t>(s * scale_bytes);
  }
  __device__ __forceinline__ std::uint32_t Full(int s) const {
    return full_at + static_cast<std::uint32_t>(8 * s);
  }
  __device__ __forceinline__ std::uint32_t Empty(int s) const {
    return empty_at + static_cast<std::uint32_t>(8 * s);
  }
  // By one thread; a FenceBarrierInit and a CTA barrier follow.
  __device__ __forceinline__ void Init() const {
    for (int s = 0; s < stages; s++) {
      InitBarrier(Full(s), 1 + kGatherWarps * kArrivalsOfWarp);
      InitBarrier(Empty(s), kMultiplyingWarps * kArrivalsOfWarp);
    }
  }
};

struct RingPosition {
  int stage = 0;
  std::uint32_t phase = 0;

  __device__ __forceinline__ void Advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// The thread that streams weights: at most `window` stages are in flight, and later ones wait for
// the oldest. Without a bound the memory's queues are full, and every other access waits in them.
class WeightStream {
 public:
  __device__ __forceinline__ WeightStream(const StageRing& ring, int window)
      : ring_(ring), window_(window), policy_(EvictFirst()) {}

  // One of the first stages of all, fewer than the ring has: no bound, nothing else is under way.
  __device__ __forceinline__ void FetchEarly(const std::byte* from) {
    in_flight_++;
    Issue(from);
  }
  __device__ __forceinline__ void Fetch(const std::byte* from) {
    WaitBarrier(ring_.Empty(next_.stage), next_.phase ^ 1);
    for (; in_flight_ >= window_; in_flight_--) {
      WaitBarrier(ring_.Full(oldest_.stage), oldest_.phase);
      oldest_.Advance(ring_.stages);
    }
    in_flight_++;
    Issue(from);
  }

 private:
  __device__ __forceinline__ void Issue(const std::byte* from) {
    ArriveExpecting(ring_.Full(next_.stage), ring_.weight_bytes);
    BulkCopy(ring_.Weights(next_.stage), from, ring_.weight_bytes, ring_.Full(next_.stage),
             policy_);
    next_.Advance(ring_.stages);
  }

  const StageRing& ring_;
  const int window_;
  const std::uint64_t policy_;
  RingPosition next_{};
  RingPosition oldest_{};
  int in_flight_ = 0;
};

// The rows of a unit that a gathering thread copies: of each of its copies, and of its scales.
template <int kRows>
struct RowList {
  std::int32_t of_copy[kRows / 8];
  std::int32_t of_scales;
  int rows;

  // Of `count` slots from `slot` on; thread i's copy j has row i / 8 + 8 j.
  __device__ __forceinline__ void Load(const std::int32_t* row_index, int slot, int count,
                                       int thread) {
    rows = count;
    const auto row_of = [&](int r) {
      if (r >= count) return 0;
      return row_index == nullptr ? slot + r : row_index[slot + r];
    };
#pragma unroll
    for (int j = 0; j < kRows / 8; j++) of_copy[j] = row_of(thread / 8 + 8 * j);
    of_scales = row_of(thread);
  }
};

// Where a gathering thread reads a unit's rows.
template <int kRows>
struct RowPointers {
  const std::byte* of_copy[kRows / 8];
  const std::byte* scales;
  int rows;

  __device__ __forceinline__ RowPointers(const RowList<kRows>& list, const std::byte* base,
                                         std::int64_t stride, const std::byte* scale_base,
                                         std::int64_t scale_stride, int chunk)
      : scales(scale_base + list.of_scales * scale_stride), rows(list.rows) {
#pragma unroll
    for (int j = 0; j < kRows / 8; j++) of_copy[j] = base + list.of_copy[j] * stride + chunk * 16;
  }
};

// The two warps that gather rows: thread i copies 16-byte chunk i % 8 of rows i / 8, i / 8 + 8, ...
// kParts: pieces of 128 bytes of each row in a stage, a tile of all rows each.
template <int kRows, int kDepth = kGatherDepthMax, int kParts = 1>
class RowGather {
 public:
  __device__ __forceinline__ RowGather(const StageRing& ring, int thread)
      : ring_(ring), thread_(thread), row_(thread / 8), chunk_(thread % 8) {}

  __device__ __forceinline__ int chunk() const { return chunk_; }

  // Copies block `k` of the rows into the next stage, and kScaleBytes of each row's scales.
  template <int kScaleBytes>
  __device__ __forceinline__ void Fetch(const RowPointers<kRows>& from, int k) {
    WaitBarrier(ring_.Empty(next_.stage), next_.phase ^ 1);
    const std::uint32_t to = ring_.Rows(next_.stage) +
                             static_cast<std::uint32_t>(row_ * 128 + ((chunk_ ^ (row_ & 7)) << 4));
#pragma unroll
    for (int part = 0; part < kParts; part++) {
#pragma unroll
      for (int j = 0; j < kRows / 8; j++) {
        if (row_ + 8 * j >= from.rows) continue;
        CopyAsync16(to + part * kRows * 128 + j * 1024,
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
    next_.Advance(ring_.stages);
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
  __device__ __forceinline__ void Publish() {
    FenceForTensorCores();
    ArriveOfWarp(ring_.Full(published_.stage));
    published_.Advance(ring_.stages);
    pending_--;
  }

  const StageRing& ring_;
  const int thread_;
  const int row_;
  const int chunk_;
  RingPosition next_{};
  RingPosition published_{};
  int pending_ = 0;
};

}  // namespace switchyard::cuda
