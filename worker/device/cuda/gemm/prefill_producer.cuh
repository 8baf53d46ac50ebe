// The producer warp of a prefill kernel: takes units of work and keeps the ring of stages full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda.h>

#include "worker/device/cuda/gemm/prefill_shared.cuh"
#include "worker/device/cuda/gemm/sm90_pipeline.cuh"

namespace switchyard::cuda {

// The units of a cluster: the first is its number, the others come from the counter. Every unit of
// the launch takes one number off it, so the counter comes back to zero.
template <int Cluster, typename Shared>
class UnitQueue {
 public:
  __device__ UnitQueue(std::uint32_t* counter, int total, int rank, Shared* shared)
      : counter_(counter),
        total_(total),
        rank_(rank),
        unit_(static_cast<int>(blockIdx.x) / Cluster),
        shared_(shared) {}

  __device__ int unit() const { return unit_; }
  __device__ bool done() const { return unit_ >= total_; }

  // Request, some time later Announce, then Take.
  __device__ void Request() {
    if (rank_ == 0 && threadIdx.x % 32 == 0) {
      taken_ = atomicInc(counter_, static_cast<std::uint32_t>(total_ - 1));
    }
  }
  __device__ void Announce() {
    if (rank_ != 0) return;
    next_ = static_cast<int>(__shfl_sync(~0U, taken_, 0) + gridDim.x / Cluster);
    if (Cluster > 1 && threadIdx.x % 32 == 0) {
      sm90::StoreWordAt(sm90::SharedAddress(&shared_->unit[slot_.stage]), next_,
                        sm90::SharedAddress(&shared_->unit_full[slot_.stage]), 1);
    }
  }
  __device__ void Take() {
    if (rank_ != 0) {
      const std::uint32_t full = sm90::SharedAddress(&shared_->unit_full[slot_.stage]);
      if (threadIdx.x % 32 == 0) sm90::BarrierArriveExpect(full, 4);
      sm90::BarrierWait(full, slot_.phase);
      next_ = shared_->unit[slot_.stage];
    }
    slot_.template Advance<kUnitSlots>();
    unit_ = next_;
  }

 private:
  std::uint32_t* counter_;
  int total_;
  int rank_;
  int unit_;
  int next_ = 0;
  std::uint32_t taken_ = 0;
  StageCursor slot_;
  Shared* shared_;
};

// The scales of B for the 32 blocks of K from `k` on, a block in each lane.
template <bool Packed>
__device__ __forceinline__ float2 LoadScales(const PrefillArgs& args, const Tile& tile, int k) {
  k += threadIdx.x % 32;
  float2 scales{0, 0};
  if (k >= args.k_blocks) return scales;
  const int block0 = tile.column_block * args.b_step / kBoxRows;
  const int block1 = block0 + args.b_second / kBoxRows;
  if constexpr (Packed) {
    const float* of_expert = args.b_scales_of_expert[tile.expert];
    scales.x = of_expert[block0 * args.k_blocks + k];
    if (block1 < args.b_blocks) scales.y = of_expert[block1 * args.k_blocks + k];
    return scales;
  }
  const std::int64_t expert = std::int64_t{tile.expert} * args.b_expert_blocks;
  scales.x = args.b_scales[0][(expert + block0) * args.k_blocks + k];
  if (block1 < args.b_blocks) scales.y = args.b_scales[1][(expert + block1) * args.k_blocks + k];
  return scales;
}

struct OperandMaps {
  const CUtensorMap* a;
  const CUtensorMap* b[2];
};

// The boxes of B of packed experts are pieces of memory, in the swizzle of the products already.
template <int Cluster, typename Operands>
__device__ __forceinline__ void CopyPackedBoxes(const PrefillArgs& args, const Tile& tile, int k,
                                                int rank, Operands* to, std::uint32_t full) {
  const std::byte* b = args.b_of_expert[tile.expert] + std::int64_t{k} * kBoxBytes;
  const std::int64_t block_bytes = std::int64_t{args.k_blocks} * kBoxBytes;
  const int block0 = tile.column_block * args.b_step / kBoxRows;
  const int second = block0 + args.b_second / kBoxRows;
  const int block1 = second < args.b_blocks ? second : block0;  // any: its columns are not stored
  if (Cluster > 1 && tile.paired) {
    sm90::CopyInto(sm90::SharedAddress(to->b[rank]),
                   b + (rank == 0 ? block0 : block1) * block_bytes, kBoxBytes, full, 3);
  } else {
    sm90::CopyIn(sm90::SharedAddress(to->b[0]), b + block0 * block_bytes, kBoxBytes, full);
    sm90::CopyIn(sm90::SharedAddress(to->b[1]), b + block1 * block_bytes, kBoxBytes, full);
  }
}

// Starts the copies of block `k` of K of a tile into a stage, without A if that is gathered. One
// thread calls it.
template <PrefillKind Kind, bool Gather, int Cluster, typename Operands>
__device__ __forceinline__ void CopyStage(const PrefillArgs& args, const OperandMaps& maps,
                                          const Tile& tile, int k, int rank, Operands* to,
                                          float* a_scales, std::uint64_t* full_barrier) {
  // Rows of packed experts begin anywhere, copies of scales at multiples of four.
  constexpr int kScales = !IsFp8(Kind) ? 0 : IsPacked(Kind) ? kScaleRows : kTileRows;
  const std::uint32_t full = sm90::SharedAddress(full_barrier);
  const int depth = k * kStageDepth;
  const int row0 = tile.column_block * args.b_step;
  const int row1 = row0 + args.b_second;
  if constexpr (Gather) {
    sm90::BarrierArriveExpect(full, sizeof(to->b));
  } else {
    sm90::BarrierArriveExpect(full, sizeof(Operands) + kScales * sizeof(float));
    sm90::CopyBoxIn(sm90::SharedAddress(to->a), maps.a, depth, tile.first_row, full);
  }
  if constexpr (IsPacked(Kind)) {
    CopyPackedBoxes<Cluster>(args, tile, k, rank, to, full);
  } else if (Cluster > 1 && tile.paired) {
    sm90::CopyBoxInto(sm90::SharedAddress(to->b[rank]), rank == 0 ? maps.b[0] : maps.b[1], depth,
                      rank == 0 ? row0 : row1, tile.expert, full, 3);
  } else {
    sm90::CopyBoxIn(sm90::SharedAddress(to->b[0]), maps.b[0], depth, row0, tile.expert, full);
    sm90::CopyBoxIn(sm90::SharedAddress(to->b[1]), maps.b[1], depth, row1, tile.expert, full);
  }
  if (IsFp8(Kind) && !Gather) {
    sm90::CopyIn(sm90::SharedAddress(a_scales),
                 args.a_scales + k * args.a_scales_row + tile.first_row / 4 * 4,
                 kScales * sizeof(float), full);
  }
}

template <PrefillKind Kind, bool Gather, int Cluster, int Stages>
__device__ void Produce(const PrefillArgs& args, const OperandMaps& maps,
                        PrefillShared<Stages>* shared) {
  constexpr bool kFp8 = IsFp8(Kind);
  const int lane = threadIdx.x % 32;
  const int rank = Cluster > 1 ? static_cast<int>(sm90::ClusterRank()) : 0;
  using Layout = std::conditional_t<IsPacked(Kind), PackedRows, AlignedRows>;
  const auto layout = [&args] {
    if constexpr (IsPacked(Kind)) {
      return Layout(args.counts, args.offsets);
    } else {
      return Layout(args.row_ends, args.rows_max);
    }
  };
  TileWalk<Cluster, Layout> walk(layout(), args.experts, args.column_blocks, args.band, rank);
  UnitQueue<Cluster, PrefillShared<Stages>> units(args.units_taken, walk.Total(), rank, shared);
  StageCursor at{.stage = 0, .phase = 1};
  StageCursor slot;
  auto announce_rows = [&](int row) {
    if (!Gather) return;
    if (lane == 0) {
      shared->gather_row[slot.stage] = row;
      sm90::BarrierArrive(sm90::SharedAddress(&shared->gather_full[slot.stage]));
    }
    slot.template Advance<kUnitSlots>();
  };
  for (; !units.done(); units.Take()) {
    const Tile tile = walk.At(units.unit());
    announce_rows(tile.first_row);
    units.Request();
    float2 scales{0, 0};
#pragma unroll 1  // copies of the loop would not fit the producer's registers
    for (int k = 0; k < args.k_blocks; ++k) {
      if (k == 1) units.Announce();
      if (kFp8 && k % 32 == 0) scales = LoadScales<IsPacked(Kind)>(args, tile, k);
      const float2 stage_scales{__shfl_sync(~0U, scales.x, k % 32),
                                __shfl_sync(~0U, scales.y, k % 32)};
      sm90::BarrierWait(sm90::SharedAddress(&shared->empty[at.stage]), at.phase);
      if (lane == 0) {
        StageNote& note = shared->note[at.stage];
        note.kind = StageKind::kTile;
        note.row = tile.first_row;
        note.rows = tile.stored ? tile.rows : 0;
        note.column = tile.column_block * (IsGated(Kind) ? kBoxRows : 2 * kBoxRows);
        note.b_scales = stage_scales;
        CopyStage<Kind, Gather, Cluster>(args, maps, tile, k, rank, &shared->stage[at.stage],
                                         shared->a_scales[at.stage], &shared->full[at.stage]);
      }
      __syncwarp();
      at.template Advance<Stages>();
    }
  }
  announce_rows(-1);
  sm90::BarrierWait(sm90::SharedAddress(&shared->empty[at.stage]), at.phase);
  if (lane == 0) {
    shared->note[at.stage].kind = StageKind::kEnd;
    sm90::BarrierArrive(sm90::SharedAddress(&shared->full[at.stage]));
  }
}

}  // namespace switchyard::cuda
