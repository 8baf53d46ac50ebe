// The ring of shared-memory stages between the warps that fetch and the warps that multiply.
//
// A stage holds 128 bytes of k, or 256 narrow weights: a tile of weights (one bulk copy) and a tile
// of rows with their scales (asynchronous copies by two warps). It is full when the bulk copy and
// both warps have arrived, empty again when all multiplying warps have. Every role walks the stages
// in the same order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/ptx.cuh"
#include "worker/device/cuda/warp_arrivals.h"

namespace switchyard::cuda {

constexpr int kMultiplyingWarps = 8;
constexpr int kGatherWarps = 2;
constexpr int kGatherFirst = 288;  // the first gathering thread, after the streaming warp

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

  // Rows are in the tensor cores' swizzle, so they are 1024-byte aligned.
  static __host__ __device__ constexpr int RowsBehind(int weight_bytes) {
    return (weight_bytes + 1023) / 1024 * 1024;
  }

  __device__ __forceinline__ std::uint32_t Weights(int s) const {
    return stages_at + static_cast<std::uint32_t>(s * stage_bytes);
  }
  __device__ __forceinline__ std::uint32_t Rows(int s) const {
    return Weights(s) + static_cast<std::uint32_t>(RowsBehind(weight_bytes));
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
  __device__ __forceinline__ void Init(int multiplying_warps = kMultiplyingWarps) const {
    for (int s = 0; s < stages; s++) {
      InitBarrier(Full(s), 1 + kGatherWarps * kArrivalsOfWarp);
      InitBarrier(Empty(s), multiplying_warps * kArrivalsOfWarp);
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
  __device__ __forceinline__ void FetchEarly(const std::byte* from, int bytes) {
    in_flight_++;
    Issue(from, bytes);
  }
  __device__ __forceinline__ void Fetch(const std::byte* from, int bytes) {
    WaitBarrier(ring_.Empty(next_.stage), next_.phase ^ 1);
    for (; in_flight_ >= window_; in_flight_--) {
      WaitBarrier(ring_.Full(oldest_.stage), oldest_.phase);
      oldest_.Advance(ring_.stages);
    }
    in_flight_++;
    Issue(from, bytes);
  }

 private:
  __device__ __forceinline__ void Issue(const std::byte* from, int bytes) {
    ArriveExpecting(ring_.Full(next_.stage), bytes);
    BulkCopy(ring_.Weights(next_.stage), from, bytes, ring_.Full(next_.stage), policy_);
    next_.Advance(ring_.stages);
  }

  const StageRing& ring_;
  const int window_;
  const std::uint64_t policy_;
  RingPosition next_{};
  RingPosition oldest_{};
  int in_flight_ = 0;
};

}  // namespace switchyard::cuda
