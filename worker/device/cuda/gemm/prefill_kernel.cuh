// The grouped product of prefill on Hopper: one persistent block of three warpgroups on each SM.
//
//   warpgroup 2, warp 0   walks the tiles and copies operands and scales into a ring of stages
//   warpgroups 0 and 1    64 rows x 256 columns each: products, scaling, rounding, store
//
// A stage holds 128 bytes of K: 128 rows of A, 2 x 128 rows of B, the 128 scales of A and the two of
// B. What a stage is for (which tile, or the end) travels in the stage, so consumers walk nothing.
//
// FP8: 128 products along K are summed by the tensor cores, whose sums keep few bits, then promoted
// to FP32 times both scales. 256 columns need 128 registers of sums; the halves take turns with 64
// registers of products, and while one warpgroup promotes, the other one's products run.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "worker/device/cuda/gemm/prefill_tiles.cuh"
#include "worker/device/cuda/gemm/sm90_pipeline.cuh"
#include "worker/device/cuda/gemm/sm90_wgmma.cuh"

namespace switchyard::cuda {

inline constexpr int kStageDepth = 128;  // bytes of K
inline constexpr int kBoxRows = 128;     // rows that one copy of A or B brings
inline constexpr int kBoxBytes = kBoxRows * kStageDepth;
inline constexpr int kConsumerWarps = 8;
inline constexpr int kPrefillThreads = 32 * (kConsumerWarps + 4);
inline constexpr int kStoreRows = 16;    // rows that one copy out takes: those of a warp
inline constexpr int kStoreBytes = kStoreRows * 128;

// What a stage holds, beside the operands.
enum class StageKind : int { kEnd = 0, kSkip = 1, kStore = 2 };
struct StageNote {
  StageKind kind;
  int row;           // of the tile
  int column_block;
  int unused;
  float2 b_scales;   // of the two boxes of B
  float2 padding;
};

template <int Stages>
struct alignas(1024) PrefillShared {
  struct Operands {
    std::uint8_t a[kBoxBytes];
    std::uint8_t b[2][kBoxBytes];
  } stage[Stages];
  std::uint8_t out[kConsumerWarps][2][kStoreBytes];
  float a_scales[Stages][kBoxRows];
  StageNote note[Stages];
  std::uint64_t full[Stages];
  std::uint64_t empty[Stages];
};

struct PrefillArgs {
  const std::int32_t* row_ends;
  int experts;
  int rows_max;
  int column_blocks;
  int k_blocks;
  int band;
  // Box h of column block c begins at row b_step * c + b_second * h of B's map h.
  int b_step;
  int b_second;
  const float* a_scales;      // FP8
  std::int64_t a_scales_row;  // values from one block of K to the next
  const float* b_scales[2];   // FP8: of map h
  int b_scale_rows;           // 128-row blocks of B's map h in an expert
};

struct StageCursor {
  int stage = 0;
  std::uint32_t phase = 0;

  template <int Stages>
  __device__ __forceinline__ void Advance() {
    if (++stage == Stages) {
      stage = 0;
      phase ^= 1;
    }
  }
};

// ---- producer ----

template <bool Fp8, int Cluster, int Stages>
__device__ void Produce(const PrefillArgs& args, const CUtensorMap* a_map,
                        const CUtensorMap* b_map0, const CUtensorMap* b_map1,
                        PrefillShared<Stages>* shared) {
  const int lane = threadIdx.x % 32;
  const int rank = Cluster > 1 ? static_cast<int>(sm90::ClusterRank()) : 0;
  TileWalk<Cluster> walk(args.row_ends, args.experts, args.rows_max, args.column_blocks, args.band,
                         blockIdx.x / Cluster, gridDim.x / Cluster, rank);
  StageCursor at{.stage = 0, .phase = 1};
  Tile tile;
  while (walk.Next(&tile)) {
    const int b_row0 = tile.column_block * args.b_step;
    const int b_row1 = b_row0 + args.b_second;
    float scale0 = 0;
    float scale1 = 0;
#pragma unroll 1  // copies of the loop would not fit the producer's registers
    for (int k = 0; k < args.k_blocks; ++k) {
      if (Fp8 && k % 32 == 0 && k + lane < args.k_blocks) {
        const int block0 = tile.expert * args.b_scale_rows + b_row0 / kBoxRows;
        const int block1 = tile.expert * args.b_scale_rows + b_row1 / kBoxRows;
        const bool whole = b_row1 / kBoxRows < args.b_scale_rows;
        scale0 = args.b_scales[0][std::int64_t{block0} * args.k_blocks + k + lane];
        scale1 = whole ? args.b_scales[1][std::int64_t{block1} * args.k_blocks + k + lane] : 0.0F;
      }
      const float2 b_scales{__shfl_sync(~0U, scale0, k % 32), __shfl_sync(~0U, scale1, k % 32)};
      const std::uint32_t full = sm90::SharedAddress(&shared->full[at.stage]);
      sm90::BarrierWait(sm90::SharedAddress(&shared->empty[at.stage]), at.phase);
      if (lane == 0) {
        auto& stage = shared->stage[at.stage];
        shared->note[at.stage].kind = tile.stored ? StageKind::kStore : StageKind::kSkip;
        shared->note[at.stage].row = tile.first_row;
        shared->note[at.stage].column_block = tile.column_block;
        shared->note[at.stage].b_scales = b_scales;
        sm90::BarrierArriveExpect(full, 3 * kBoxBytes + (Fp8 ? kBoxRows * 4 : 0));
        const int depth = k * kStageDepth;
        sm90::CopyBoxIn(sm90::SharedAddress(stage.a), a_map, depth, tile.first_row, full);
        if (Cluster > 1 && tile.paired) {
          sm90::CopyBoxInto(sm90::SharedAddress(stage.b[rank]), rank == 0 ? b_map0 : b_map1, depth,
                            rank == 0 ? b_row0 : b_row1, tile.expert, full, 3);
        } else {
          sm90::CopyBoxIn(sm90::SharedAddress(stage.b[0]), b_map0, depth, b_row0, tile.expert,
                          full);
          sm90::CopyBoxIn(sm90::SharedAddress(stage.b[1]), b_map1, depth, b_row1, tile.expert,
                          full);
        }
        if (Fp8) {
          sm90::CopyIn(sm90::SharedAddress(shared->a_scales[at.stage]),
                       args.a_scales + k * args.a_scales_row + tile.first_row, kBoxRows * 4, full);
        }
      }
      __syncwarp();
      at.template Advance<Stages>();
    }
  }
  sm90::BarrierWait(sm90::SharedAddress(&shared->empty[at.stage]), at.phase);
  if (lane == 0) {
    shared->note[at.stage].kind = StageKind::kEnd;
    sm90::BarrierArrive(sm90::SharedAddress(&shared->full[at.stage]));
  }
}

// ---- consumers ----

// A warp's 16 rows x 128 columns of sums, rounded to BF16 and copied out in two boxes of 64 columns.
__device__ __forceinline__ void StoreHalf(const float* sums, std::uint8_t (*out)[kStoreBytes],
                                          const CUtensorMap* map, int column, int row,
                                          bool stored) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int box = 0; box < 2; ++box) {
    if (lane == 0) sm90::WaitCopiedOut<1>();
    __syncwarp();
    const std::uint32_t base = sm90::SharedAddress(out[box]) + lane % 16 * 128;
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      std::uint32_t m[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = sums + (box * 8 + j) * 4 + 2 * i;
        const __nv_bfloat162 rounded = __floats2bfloat162_rn(pair[0], pair[1]);
        m[i] = *reinterpret_cast<const std::uint32_t*>(&rounded);
      }
      sm90::StoreMatrices(base + (((j + lane / 16) ^ (lane % 8)) << 4), m[0], m[1], m[2], m[3]);
    }
    sm90::FenceSharedToAsync();
    __syncwarp();
    if (lane == 0 && stored) {
      sm90::CopyBoxOut(map, sm90::SharedAddress(out[box]), (column + box * 64) * 2, row);
    }
  }
}

// Gives the stage back to the producers of the cluster.
template <int Cluster>
__device__ __forceinline__ void Release(std::uint64_t* empty) {
  __syncwarp();
  const int lane = threadIdx.x % 32;
  if (Cluster == 1) {
    if (lane == 0) sm90::BarrierArrive(sm90::SharedAddress(empty));
  } else if (lane < Cluster) {
    sm90::BarrierArriveAt(sm90::SharedAddress(empty), lane);
  }
}

// The warpgroups issue products in turn, each at barrier 1 + its number.
template <bool Turns>
__device__ __forceinline__ void TakeTurn(int group) {
  if (Turns) sm90::NamedBarrierSync(1 + group, 256);
}
template <bool Turns>
__device__ __forceinline__ void PassTurn(int group) {
  if (Turns) sm90::NamedBarrierArrive(2 - group, 256);
}

template <int Cluster, int Stages, bool Turns, bool Late>
__device__ void ConsumeFp8(const PrefillArgs& args, const CUtensorMap* out_map,
                           PrefillShared<Stages>* shared) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int group = warp / 4;
  const int row = warp * 16 + lane / 4;
  float sums[2][64];
  float products[64];
  StageCursor at;
  bool waiting = false;  // sums[1] of the tile before are not stored yet
  int row_before = 0;
  int column_before = 0;

  auto issue = [&](int half) {
    const auto& stage = shared->stage[at.stage];
    const std::uint64_t a = sm90::OperandDescriptor(sm90::SharedAddress(stage.a) + group * 8192);
    const std::uint64_t b = sm90::OperandDescriptor(sm90::SharedAddress(stage.b[half]));
    TakeTurn<Turns>(group);
    sm90::WgmmaFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) sm90::WgmmaE4m3N128(products, a + 2 * k, b + 2 * k, k > 0);
    sm90::WgmmaCommit();
    PassTurn<Turns>(group);
  };
  auto promote = [&](float (&to)[64], float2 scale, bool first) {
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const float s = (i & 2) != 0 ? scale.y : scale.x;
      to[i] = first ? products[i] * s : to[i] + products[i] * s;
    }
  };
  // One block of K. `early` runs while the products of the first half do, `late` while those of the
  // second do.
  auto block = [&](bool first, auto early, auto late) {
    issue(0);
    early();
    const float2 a{shared->a_scales[at.stage][row], shared->a_scales[at.stage][row + 8]};
    const float2 b = shared->note[at.stage].b_scales;
    sm90::WgmmaWait<0>();
    sm90::WgmmaPin(products);
    promote(sums[0], {a.x * b.x, a.y * b.x}, first);
    issue(1);
    late();
    sm90::WgmmaWait<0>();
    sm90::WgmmaPin(products);
    Release<Cluster>(&shared->empty[at.stage]);
    at.template Advance<Stages>();
    promote(sums[1], {a.x * b.y, a.y * b.y}, first);
  };
  auto nothing = [] {};

#pragma unroll
  for (int i = 0; i < 64; ++i) sums[1][i] = 0;
  if (Turns && group == 1) sm90::NamedBarrierArrive(1, 256);
  for (;;) {
    sm90::BarrierWait(sm90::SharedAddress(&shared->full[at.stage]), at.phase);
    const StageKind kind = shared->note[at.stage].kind;
    if (kind == StageKind::kEnd) break;
    const int tile_row = shared->note[at.stage].row + warp * kStoreRows;
    const int column = shared->note[at.stage].column_block * kTileColumns;
    block(
        true,
        [&] {
          if (Late) {
            StoreHalf(sums[1], shared->out[warp], out_map, column_before, row_before, waiting);
          }
        },
        nothing);
    for (int k = 1; k < args.k_blocks - 1; ++k) {
      sm90::BarrierWait(sm90::SharedAddress(&shared->full[at.stage]), at.phase);
      block(false, nothing, nothing);
    }
    sm90::BarrierWait(sm90::SharedAddress(&shared->full[at.stage]), at.phase);
    block(false, nothing, [&] {
      StoreHalf(sums[0], shared->out[warp], out_map, column, tile_row, kind == StageKind::kStore);
    });
    row_before = tile_row;
    column_before = column + 128;
    waiting = kind == StageKind::kStore;
    if (!Late) {
      StoreHalf(sums[1], shared->out[warp], out_map, column_before, row_before, waiting);
    }
  }
  if (Late && waiting) {
    StoreHalf(sums[1], shared->out[warp], out_map, column_before, row_before, waiting);
  }
  if (lane == 0) sm90::WaitCopiedOut<0>();
}

template <int Cluster, int Stages>
__device__ void ConsumeBf16(const PrefillArgs& args, const CUtensorMap* out_map,
                            PrefillShared<Stages>* shared) {
  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int group = warp / 4;
  float sums[128];
  StageCursor at;
  auto issue = [&](bool first) {
    const auto& stage = shared->stage[at.stage];
    const std::uint64_t a = sm90::OperandDescriptor(sm90::SharedAddress(stage.a) + group * 8192);
    const std::uint64_t b = sm90::OperandDescriptor(sm90::SharedAddress(stage.b[0]));
    sm90::WgmmaFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sm90::WgmmaBf16N256(sums, a + 2 * k, b + 2 * k, !first || k > 0 ? 1 : 0);
    }
    sm90::WgmmaCommit();
  };

  for (;;) {
    sm90::BarrierWait(sm90::SharedAddress(&shared->full[at.stage]), at.phase);
    const StageKind kind = shared->note[at.stage].kind;
    if (kind == StageKind::kEnd) break;
    const int tile_row = shared->note[at.stage].row + warp * kStoreRows;
    const int column = shared->note[at.stage].column_block * kTileColumns;
    issue(true);
    int before = at.stage;
    at.template Advance<Stages>();
    for (int k = 1; k < args.k_blocks; ++k) {
      sm90::BarrierWait(sm90::SharedAddress(&shared->full[at.stage]), at.phase);
      issue(false);
      sm90::WgmmaWait<1>();
      Release<Cluster>(&shared->empty[before]);
      before = at.stage;
      at.template Advance<Stages>();
    }
    sm90::WgmmaWait<0>();
    sm90::WgmmaPin(sums);
    Release<Cluster>(&shared->empty[before]);
    StoreHalf(sums, shared->out[warp], out_map, column, tile_row, kind == StageKind::kStore);
    StoreHalf(sums + 64, shared->out[warp], out_map, column + 128, tile_row,
              kind == StageKind::kStore);
  }
  if (lane == 0) sm90::WaitCopiedOut<0>();
}

// ---- kernel ----

template <int Cluster, int Stages>
__device__ void StartPipeline(PrefillShared<Stages>* shared) {
  if (threadIdx.x == 0) {
    if (sm90::SharedAddress(shared) % 1024 != 0) __trap();
    for (int i = 0; i < Stages; ++i) {
      sm90::BarrierInit(sm90::SharedAddress(&shared->full[i]), 1);
      sm90::BarrierInit(sm90::SharedAddress(&shared->empty[i]), kConsumerWarps * Cluster);
    }
    sm90::FenceBarrierInit();
  }
  if (Cluster > 1) {
    sm90::ClusterSync();
  } else {
    __syncthreads();
  }
}

template <bool Fp8, int Cluster, int Stages, bool Turns, bool Late>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    PrefillKernel(const __grid_constant__ PrefillArgs args, const __grid_constant__ CUtensorMap a,
                  const __grid_constant__ CUtensorMap b0, const __grid_constant__ CUtensorMap b1,
                  const __grid_constant__ CUtensorMap out) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto* shared = reinterpret_cast<PrefillShared<Stages>*>(memory);
  StartPipeline<Cluster>(shared);
  sm90::WaitForPreviousKernel();
  if (threadIdx.x < 32 * kConsumerWarps) {
    sm90::RaiseRegisters<224>();
    if constexpr (Fp8) {
      ConsumeFp8<Cluster, Stages, Turns, Late>(args, &out, shared);
    } else {
      ConsumeBf16<Cluster, Stages>(args, &out, shared);
    }
  } else {
    sm90::LowerRegisters<56>();
    if (threadIdx.x / 32 == kConsumerWarps) {
      Produce<Fp8, Cluster, Stages>(args, &a, &b0, &b1, shared);
    }
  }
  // Neither block leaves while the other one still arrives at its barriers.
  __syncwarp();
  if (Cluster > 1) sm90::ClusterSync();
}

}  // namespace switchyard::cuda
