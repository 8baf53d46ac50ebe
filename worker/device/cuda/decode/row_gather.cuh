// The warps that gather the rows of a group into the stages of a ring (stage_ring.cuh), wherever
// the rows lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/decode/stage_ring.cuh"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

// Stages that a gathering warp has under way before it publishes the oldest; fewer than a ring has.
constexpr int kGatherDepthMax = 4;

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
    // Kept in registers, else the base is loaded again for each copy.
    asm volatile("" : "+l"(scales));
#pragma unroll
    for (int j = 0; j < kRows / 8; j++) {
      of_copy[j] = base + list.of_copy[j] * stride + chunk * 16;
      asm volatile("" : "+l"(of_copy[j]));
    }
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

  // Copies stage `k` of the rows into the next stage: `parts` of its pieces, and of each row
  // kScaleBytes for each of kScaleParts equal shares of these.
  template <int kScaleBytes, int kScaleParts = 1>
  __device__ __forceinline__ void Fetch(const RowPointers<kRows>& from, int k, int parts = kParts) {
    WaitBarrier(ring_.Empty(next_.stage), next_.phase ^ 1);
    const std::uint32_t to = ring_.Rows(next_.stage) +
                             static_cast<std::uint32_t>(row_ * 128 + ((chunk_ ^ (row_ & 7)) << 4));
#pragma unroll
    for (int part = 0; part < kParts; part++) {
      if (part > 0 && part >= parts) continue;
#pragma unroll
      for (int j = 0; j < kRows / 8; j++) {
        if (row_ + 8 * j >= from.rows) continue;
        CopyAsync16(to + part * kRows * 128 + j * 1024,
                    from.of_copy[j] + (k * kParts + part) * 128);
      }
    }
    if (kScaleBytes != 0 && thread_ < from.rows) {
#pragma unroll
      for (int part = 0; part < kScaleParts; part++) {
        if (part > 0 && part * (kParts / kScaleParts) >= parts) continue;
        CopyScales<kScaleBytes>(
            ring_.Scales(next_.stage) +
                static_cast<std::uint32_t>((part * kRows + thread_) * kScaleBytes),
            from.scales + (k * kScaleParts + part) * kScaleBytes);
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
  template <int kBytes>
  static __device__ __forceinline__ void CopyScales(std::uint32_t to, const std::byte* from) {
    if constexpr (kBytes == 8) {
      CopyAsync8(to, from);
    } else if constexpr (kBytes == 4) {
      CopyAsync4(to, from);
    }
  }
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
