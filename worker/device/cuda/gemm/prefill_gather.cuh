// The warps that gather rows of A by index, where they do not stand together.
//
// The copy engine of Hopper has no gather, so threads copy 16 bytes at a time, in the 128-byte
// swizzle that the products expect. A stage is passed on kGatherLag stages after its copies began:
// that many are in flight.
#pragma once

#include <cstdint>

#include "worker/device/cuda/gemm/prefill_shared.cuh"
#include "worker/device/cuda/gemm/sm90_pipeline.cuh"
#include "worker/device/cuda/warp_arrivals.h"

namespace switchyard::cuda {

inline constexpr int kGatherLag = 2;  // below the number of stages, or nothing would ever move

// Rows of a tile that a warp gathers: groups of eight, every kGatherWarps-th.
struct GatherRows {
  static constexpr int kGroups = (kTileRows / 8 + kGatherWarps - 1) / kGatherWarps;

  // The `i`-th row of warp `warp`; kTileRows or more: there is none.
  static __device__ __forceinline__ int Row(int warp, int i) {
    return (warp + i / 8 * kGatherWarps) * 8 + i % 8;
  }
  // Whether the warp has group `group`; only for the last one this is not known before.
  static __device__ __forceinline__ bool Has(int warp, int group) {
    return group < kGroups - 1 || warp + group * kGatherWarps < kTileRows / 8;
  }
};

__device__ __forceinline__ std::int64_t SourceRow(const PrefillArgs& args, int row) {
  const std::int32_t source = args.gather.rows[row];
  return static_cast<std::uint32_t>(source) < static_cast<std::uint32_t>(args.gather.source_rows)
             ? source
             : 0;
}

template <bool Fp8, int Stages>
class Gatherer {
 public:
  __device__ Gatherer(const PrefillArgs& args, const void* a, int warp,
                      PrefillShared<Stages>* shared)
      : args_(args), a_(static_cast<const std::uint8_t*>(a)), warp_(warp), shared_(shared) {}

  __device__ void Run() {
    StageCursor slot;
    for (;;) {
      sm90::BarrierWait(sm90::SharedAddress(&shared_->gather_full[slot.stage]), slot.phase);
      const int row = shared_->gather_row[slot.stage];
      if (row < 0) break;
      slot.template Advance<kUnitSlots>();
      Tile(row);
    }
    sm90::WaitGathered<0>();
    for (int i = 0; i < pending_; ++i) Publish();
    sm90::BarrierWait(sm90::SharedAddress(&shared_->empty[at_.stage]), at_.phase);
    if (lane_ < kArrivalsOfWarp)
      sm90::BarrierArrive(sm90::SharedAddress(&shared_->full[at_.stage]));
  }

 private:
  __device__ void Tile(int first_row) {
    scale_place_ = first_row % 4;                 // as the copy engine leaves scales
    std::uint32_t from[2 * GatherRows::kGroups];  // in units of 16 bytes
#pragma unroll
    for (int i = 0; i < 2 * GatherRows::kGroups; ++i) {
      const int row = first_row + GatherRows::Row(warp_, 4 * i + lane_ / 8);
      from[i] = GatherRows::Has(warp_, i / 2)
                    ? static_cast<std::uint32_t>(
                          SourceRow(args_, row) * (args_.gather.row_bytes / 16) + lane_ % 8)
                    : 0;
    }
    std::int64_t scale_from[2] = {};
#pragma unroll
    for (int i = 0; i < (Fp8 ? 2 : 0); ++i) {
      const int row = GatherRows::Row(warp_, 32 * i + lane_);
      if (row < kTileRows && 32 * i + lane_ < 8 * GatherRows::kGroups) {
        scale_from[i] = SourceRow(args_, first_row + row) * args_.gather.scales_row;
      }
    }
#pragma unroll 1
    for (int k = 0; k < args_.k_blocks; ++k) {
      sm90::BarrierWait(sm90::SharedAddress(&shared_->empty[at_.stage]), at_.phase);
      Copy(from, scale_from, k);
      sm90::CommitGathered();
      at_.template Advance<Stages>();
      if (pending_ < kGatherLag) {
        ++pending_;
      } else {
        sm90::WaitGathered<kGatherLag>();
        Publish();
      }
    }
  }

  __device__ void Copy(const std::uint32_t (&from)[2 * GatherRows::kGroups],
                       const std::int64_t (&scale_from)[2], int k) {
    const int within = lane_ / 8;  // and four more for every second copy: the swizzle of a row
    const std::uint32_t to =
        sm90::SharedAddress(shared_->stage[at_.stage].a) + (warp_ * 8 + within) * kStageDepth;
    const std::uint32_t swizzle[2] = {(lane_ % 8 ^ within) * 16U,
                                      (lane_ % 8 ^ (within + 4)) * 16U + 4 * kStageDepth};
    const std::uint8_t* a = a_ + std::int64_t{k} * kStageDepth;
#pragma unroll
    for (int i = 0; i < 2 * GatherRows::kGroups; ++i) {
      if (GatherRows::Has(warp_, i / 2)) {
        sm90::Gather16(to + i / 2 * (kGatherWarps * 8 * kStageDepth) + swizzle[i % 2],
                       a + std::int64_t{from[i]} * 16);
      }
    }
#pragma unroll
    for (int i = 0; i < (Fp8 ? 2 : 0); ++i) {
      const int row = GatherRows::Row(warp_, 32 * i + lane_);
      if (row < kTileRows && 32 * i + lane_ < 8 * GatherRows::kGroups) {
        sm90::Gather4(sm90::SharedAddress(&shared_->a_scales[at_.stage][row + scale_place_]),
                      args_.a_scales + scale_from[i] + k * args_.a_scales_row);
      }
    }
  }

  // Passes on the oldest stage whose copies have ended.
  __device__ void Publish() {
    sm90::FenceSharedToAsync();
    __syncwarp();
    if (lane_ < kArrivalsOfWarp)
      sm90::BarrierArrive(sm90::SharedAddress(&shared_->full[done_.stage]));
    done_.template Advance<Stages>();
  }

  const PrefillArgs& args_;
  const std::uint8_t* a_;
  int warp_;
  PrefillShared<Stages>* shared_;
  int lane_ = static_cast<int>(threadIdx.x % 32);
  StageCursor at_{.stage = 0, .phase = 1};
  StageCursor done_;
  int pending_ = 0;
  int scale_place_ = 0;
};

}  // namespace switchyard::cuda
