// The grouped product of prefill on Hopper: one persistent block of three warpgroups on each SM.
//
//   warpgroup 2, warp 0   takes tiles and copies operands and scales into a ring of stages
//   warpgroups 0 and 1    64 rows of the tile each: products, scaling, rounding, store
//
// A stage holds 128 bytes of K: 128 rows of A, the rows of B in two boxes, the 128 scales of A and
// those of B. What a stage is for (which tile, or the end) travels in it, so consumers take nothing.
//
// FP8: 128 products along K are summed by the tensor cores, whose sums keep few bits, then promoted
// to FP32 times both scales. While one warpgroup promotes, the products of the other one run. The
// tile has either 192 columns in one go (96 + 96 registers of sums and products), or 256 in two
// chunks that share 64 registers of products.
//
// Clusters take units of work from a counter in device memory: SMs differ in speed by a few percent.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

#include "worker/device/cuda/gemm/prefill_tiles.cuh"
#include "worker/device/cuda/gemm/sm90_pipeline.cuh"
#include "worker/device/cuda/gemm/sm90_wgmma.cuh"

namespace switchyard::cuda {

inline constexpr int kStageDepth = 128;  // bytes of K
inline constexpr int kABytes = kTileRows * kStageDepth;
inline constexpr int kConsumerWarps = 8;
inline constexpr int kPrefillThreads = 32 * (kConsumerWarps + 4);
inline constexpr int kStoreBytes = 16 * 128;  // 16 rows x 64 columns of BF16
inline constexpr int kUnitSlots = 8;  // more than the tiles by which the blocks of a cluster differ

// What a stage holds, beside the operands.
enum class StageKind : int { kEnd = 0, kSkip = 1, kStore = 2 };
struct alignas(16) StageNote {
  StageKind kind;
  int row;  // of the tile
  int column;
  int unused;
  float b_scales[4];  // one for each piece of the columns
};

template <int Columns, int Stages>
struct alignas(1024) PrefillShared {
  static constexpr int kBoxRows = Columns / 2;  // of B
  struct alignas(1024) Operands {
    std::uint8_t a[kABytes];
    std::uint8_t b[2][kBoxRows * kStageDepth];
  } stage[Stages];
  std::uint8_t out[kConsumerWarps][kStoreBytes];
  float a_scales[Stages][kTileRows];
  StageNote note[Stages];
  std::uint64_t full[Stages];
  std::uint64_t empty[Stages];
  std::uint64_t unit_full[kUnitSlots];
  int unit[kUnitSlots];
};

struct PrefillArgs {
  const std::int32_t* row_ends;
  std::uint32_t* units_taken;
  int experts;
  int rows_max;
  int column_blocks;
  int n;
  int k_blocks;
  int band;
  const float* a_scales;      // FP8
  std::int64_t a_scales_row;  // values from one block of K to the next
  const float* b_scales;      // FP8
  __nv_bfloat16* out;
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

  // Ask, then Tell some time later, then Take.
  __device__ void Ask() {
    if (rank_ == 0 && threadIdx.x % 32 == 0) {
      taken_ = atomicInc(counter_, static_cast<std::uint32_t>(total_ - 1));
    }
  }
  __device__ void Tell() {
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
      next_ = *static_cast<volatile int*>(&shared_->unit[slot_.stage]);
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

template <bool Fp8, int Cluster, int Columns, int Stages>
__device__ void Produce(const PrefillArgs& args, const CUtensorMap* a_map, const CUtensorMap* b_map,
                        PrefillShared<Columns, Stages>* shared) {
  using Shared = PrefillShared<Columns, Stages>;
  constexpr int kBoxRows = Shared::kBoxRows;
  constexpr int kPieces = Columns == 192 ? 3 : 2;
  const int lane = threadIdx.x % 32;
  const int rank = Cluster > 1 ? static_cast<int>(sm90::ClusterRank()) : 0;
  TileWalk<Cluster> walk(args.row_ends, args.experts, args.rows_max, args.column_blocks, args.band,
                         rank);
  UnitQueue<Cluster, Shared> units(args.units_taken, walk.Total(), rank, shared);
  StageCursor at{.stage = 0, .phase = 1};
  for (; !units.done(); units.Take()) {
    const Tile tile = walk.At(units.unit());
    const int column = tile.column_block * Columns;
    units.Ask();
    float scales[kPieces] = {};
#pragma unroll 1  // copies of the loop would not fit the producer's registers
    for (int k = 0; k < args.k_blocks; ++k) {
      if (k == 1) units.Tell();
      if (Fp8 && k % 32 == 0 && k + lane < args.k_blocks) {
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) {
          const int block = (column + piece * (Columns / kPieces)) / 128;
          if (block < args.n / 128) {
            scales[piece] = args.b_scales[(std::int64_t{tile.expert} * (args.n / 128) + block) *
                                              args.k_blocks + k + lane];
          }
        }
      }
      float stage_scales[kPieces];
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        stage_scales[piece] = __shfl_sync(~0U, scales[piece], k % 32);
      }
      const std::uint32_t full = sm90::SharedAddress(&shared->full[at.stage]);
      sm90::BarrierWait(sm90::SharedAddress(&shared->empty[at.stage]), at.phase);
      if (lane == 0) {
        auto& stage = shared->stage[at.stage];
        StageNote& note = shared->note[at.stage];
        note.kind = tile.stored ? StageKind::kStore : StageKind::kSkip;
        note.row = tile.first_row;
        note.column = column;
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece) note.b_scales[piece] = stage_scales[piece];
        sm90::BarrierArriveExpect(full, sizeof stage + (Fp8 ? kTileRows * 4 : 0));
        const int depth = k * kStageDepth;
        sm90::CopyBoxIn(sm90::SharedAddress(stage.a), a_map, depth, tile.first_row, full);
        if (Cluster > 1 && tile.paired) {
          sm90::CopyBoxInto(sm90::SharedAddress(stage.b[rank]), b_map, depth,
                            column + rank * kBoxRows, tile.expert, full, 3);
        } else {
          sm90::CopyBoxIn(sm90::SharedAddress(stage.b[0]), b_map, depth, column, tile.expert, full);
          sm90::CopyBoxIn(sm90::SharedAddress(stage.b[1]), b_map, depth, column + kBoxRows,
                          tile.expert, full);
        }
        if (Fp8) {
          sm90::CopyIn(sm90::SharedAddress(shared->a_scales[at.stage]),
                       args.a_scales + k * args.a_scales_row + tile.first_row, kTileRows * 4, full);
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

struct TileOut {
  int row = 0;  // of the warp
  int column = 0;
  bool stored = false;
};

// A warp's 16 rows x 64 * Boxes columns of sums, rounded to BF16. They pass through shared memory,
// so that every row leaves in 128 contiguous bytes.
template <int Boxes>
__device__ __forceinline__ void Store(const float* sums, std::uint8_t* memory,
                                      const PrefillArgs& args, const TileOut& tile) {
  const int lane = threadIdx.x % 32;
  const std::uint32_t base = sm90::SharedAddress(memory);
#pragma unroll
  for (int box = 0; box < Boxes; ++box) {
    __syncwarp();
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      std::uint32_t m[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* pair = sums + (box * 8 + j) * 4 + 2 * i;
        const __nv_bfloat162 rounded = __floats2bfloat162_rn(pair[0], pair[1]);
        m[i] = *reinterpret_cast<const std::uint32_t*>(&rounded);
      }
      sm90::StoreMatrices(base + lane % 16 * 128 + (((j + lane / 16) ^ (lane % 8)) << 4), m[0],
                          m[1], m[2], m[3]);
    }
    __syncwarp();
    const int column = tile.column + box * 64 + lane % 8 * 8;
    __nv_bfloat16* to = args.out + std::int64_t{tile.row + lane / 8} * args.n + column;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = lane / 8 + 4 * i;
      const uint4 values = *reinterpret_cast<const uint4*>(
          memory + row * 128 + ((lane % 8 ^ row % 8) << 4));
      if (tile.stored && column < args.n) {
        *reinterpret_cast<uint4*>(to + std::int64_t{4 * i} * args.n) = values;
      }
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

template <int Cluster, int Columns, int Stages, bool Turns>
__device__ void ConsumeFp8(const PrefillArgs& args, PrefillShared<Columns, Stages>* shared) {
  constexpr int kChunks = Columns == 256 ? 2 : 1;
  constexpr int kSums = Columns / kChunks / 2;  // registers of a chunk
  constexpr int kPieces = Columns == 192 ? 3 : 1;  // of a chunk, each with a scale of B
  constexpr int kStageStep = sizeof(shared->stage[0]) / 16;  // of a descriptor
  const int warp = __shfl_sync(~0U, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;
  const int group = warp / 4;
  const int row = warp * 16 + lane / 4;
  const std::uint64_t a_operand =
      sm90::OperandDescriptor(sm90::SharedAddress(shared->stage[0].a) + group * 8192);
  const std::uint64_t b_operand =
      sm90::OperandDescriptor(sm90::SharedAddress(shared->stage[0].b[0]));
  float sums[kChunks][kSums] = {};
  float products[kSums];
  StageCursor at;
  TileOut before;  // its last chunk is not stored yet

  auto issue = [&](int chunk) {
    const std::uint64_t a = a_operand + at.stage * kStageStep;
    const std::uint64_t b = b_operand + at.stage * kStageStep + chunk * (128 * kStageDepth / 16);
    sm90::WgmmaFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) sm90::WgmmaE4m3(products, a + 2 * k, b + 2 * k, k > 0);
    sm90::WgmmaCommit();
    PassTurn<Turns>(group);
  };
  auto promote = [&](float (&to)[kSums], float2 a, const float* b, bool first) {
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const float s = ((i & 2) != 0 ? a.y : a.x) * b[i / (kSums / kPieces)];
      to[i] = first ? products[i] * s : to[i] + products[i] * s;
    }
  };
  // One block of K, whose stage is full. `early` runs while the products of the first chunk do,
  // `late` while those of the second do. Whatever can be waited for is waited for while they run:
  // between their end and the issue of the next ones there is nothing but the promotion.
  auto block = [&](bool first, auto early, auto late) {
    issue(0);
    early();
    const float2 a{shared->a_scales[at.stage][row], shared->a_scales[at.stage][row + 8]};
    const float4 notes = *reinterpret_cast<const float4*>(shared->note[at.stage].b_scales);
    const float b[4] = {notes.x, notes.y, notes.z, notes.w};
    if constexpr (kChunks == 2) {
      TakeTurn<Turns>(group);
      sm90::WgmmaWait<0>();
      sm90::WgmmaPin(products);
      promote(sums[0], a, b, first);
      issue(1);
      late();
    }
    std::uint64_t* empty = &shared->empty[at.stage];
    at.template Advance<Stages>();
    const std::uint32_t full = sm90::SharedAddress(&shared->full[at.stage]);
    const bool ready = sm90::BarrierTry(full, at.phase);
    TakeTurn<Turns>(group);
    sm90::WgmmaWait<0>();
    sm90::WgmmaPin(products);
    Release<Cluster>(empty);
    promote(sums[kChunks - 1], a, b + kChunks - 1, first);
    if (!ready) sm90::BarrierWait(full, at.phase);
  };
  auto nothing = [] {};

  if (Turns && group == 1) sm90::NamedBarrierArrive(1, 256);
  TakeTurn<Turns>(group);
  sm90::BarrierWait(sm90::SharedAddress(&shared->full[0]), 0);
  for (;;) {
    const StageNote note = shared->note[at.stage];
    if (note.kind == StageKind::kEnd) break;
    const TileOut tile{.row = note.row + warp * 16,
                       .column = note.column,
                       .stored = note.kind == StageKind::kStore};
    block(
        true, [&] { Store<kSums / 32>(sums[kChunks - 1], shared->out[warp], args, before); },
        nothing);
#pragma unroll 1
    for (int k = 1; k < args.k_blocks - 1; ++k) block(false, nothing, nothing);
    block(false, nothing, [&] { Store<2>(sums[0], shared->out[warp], args, tile); });
    before = tile;
    before.column += (kChunks - 1) * 128;
  }
  if (Turns && group == 0) PassTurn<Turns>(group);  // group 1 took its turn already
  Store<kSums / 32>(sums[kChunks - 1], shared->out[warp], args, before);
}

template <int Cluster, int Stages>
__device__ void ConsumeBf16(const PrefillArgs& args, PrefillShared<256, Stages>* shared) {
  constexpr int kStageStep = sizeof(shared->stage[0]) / 16;  // of a descriptor
  const int warp = __shfl_sync(~0U, threadIdx.x / 32, 0);
  const std::uint64_t a_operand =
      sm90::OperandDescriptor(sm90::SharedAddress(shared->stage[0].a) + warp / 4 * 8192);
  const std::uint64_t b_operand =
      sm90::OperandDescriptor(sm90::SharedAddress(shared->stage[0].b[0]));
  float sums[128];
  StageCursor at;
  auto issue = [&](bool first) {
    const std::uint64_t a = a_operand + at.stage * kStageStep;
    const std::uint64_t b = b_operand + at.stage * kStageStep;
    sm90::WgmmaFence();
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      sm90::WgmmaBf16(sums, a + 2 * k, b + 2 * k, !first || k > 0 ? 1 : 0);
    }
    sm90::WgmmaCommit();
  };

  for (;;) {
    sm90::BarrierWait(sm90::SharedAddress(&shared->full[at.stage]), at.phase);
    const StageNote note = shared->note[at.stage];
    if (note.kind == StageKind::kEnd) break;
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
    Store<4>(sums, shared->out[warp], args,
             {.row = note.row + warp * 16,
              .column = note.column,
              .stored = note.kind == StageKind::kStore});
  }
}

// ---- kernel ----

template <int Cluster, int Columns, int Stages>
__device__ void StartPipeline(PrefillShared<Columns, Stages>* shared) {
  if (threadIdx.x == 0) {
    if (sm90::SharedAddress(shared) % 1024 != 0) __trap();
    for (int i = 0; i < Stages; ++i) {
      sm90::BarrierInit(sm90::SharedAddress(&shared->full[i]), 1);
      sm90::BarrierInit(sm90::SharedAddress(&shared->empty[i]), kConsumerWarps * Cluster);
    }
    for (int i = 0; i < kUnitSlots; ++i) {
      sm90::BarrierInit(sm90::SharedAddress(&shared->unit_full[i]), 1);
    }
    sm90::FenceBarrierInit();
  }
  if (Cluster > 1) {
    sm90::ClusterSync();
  } else {
    __syncthreads();
  }
}

template <bool Fp8, int Cluster, int Columns, int Stages, bool Turns>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    PrefillKernel(const __grid_constant__ PrefillArgs args, const __grid_constant__ CUtensorMap a,
                  const __grid_constant__ CUtensorMap b) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto* shared = reinterpret_cast<PrefillShared<Columns, Stages>*>(memory);
  StartPipeline<Cluster>(shared);
  sm90::WaitForPreviousKernel();
  if (threadIdx.x < 32 * kConsumerWarps) {
    sm90::RaiseRegisters<224>();
    if constexpr (Fp8) {
      ConsumeFp8<Cluster, Columns, Stages, Turns>(args, shared);
    } else {
      ConsumeBf16<Cluster, Stages>(args, shared);
    }
  } else {
    sm90::LowerRegisters<56>();
    if (threadIdx.x / 32 == kConsumerWarps) {
      Produce<Fp8, Cluster>(args, &a, &b, shared);
    }
  }
  // Neither block leaves while the other one still arrives at its barriers.
  __syncwarp();
  if (Cluster > 1) sm90::ClusterSync();
}

}  // namespace switchyard::cuda
