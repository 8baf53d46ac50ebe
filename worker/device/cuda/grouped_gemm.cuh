// The kernel of grouped_gemm.h: one persistent CTA an SM. A thread keeps a ring of weight stages
// full across the borders of units, two warps gather the rows of each stage, two warpgroups
// multiply.
//
// The operands are swapped: weight rows are wgmma's M, the group's rows its N, so that each weight
// byte is read once for a tile of rows and few rows waste no tensor work.
//
// Before the preceding kernel is complete, and counts may be read, a CTA already fetches the first
// stages of the unit that would be its own if every group had one tile of rows. It drops them if
// the counts say otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <cuda_bf16.h>

#include "worker/device/cuda/codec_math.cuh"
#include "worker/device/cuda/gemm_arguments.h"
#include "worker/device/cuda/group_table.cuh"
#include "worker/device/cuda/grouped_gemm.h"
#include "worker/device/cuda/narrow_multiplier.cuh"
#include "worker/device/cuda/packed_weights.h"
#include "worker/device/cuda/ptx.cuh"
#include "worker/device/cuda/row_gather.cuh"
#include "worker/device/cuda/stage_ring.cuh"
#include "worker/device/cuda/wgmma.cuh"

namespace switchyard::cuda {

constexpr int kGemmThreads = 384;
constexpr int kSharedBytesMax = 232448;  // of a CTA on sm_90
constexpr std::uint32_t kWholeWarp = 0xffffffffU;

enum class Epilogue { kPlain, kSwiglu, kFp32 };

template <int kRows, MmaType kType, int kBlocks, Epilogue kEpilogue>
struct GemmShape {
  static constexpr bool kFp8 = kType == MmaType::kE4m3;
  static constexpr bool kInt4Fp8 = kType == MmaType::kInt4Fp8;
  static constexpr bool kNarrow = kInt4Fp8 || kType == MmaType::kInt4 || kType == MmaType::kE2m1;
  // Blocks of 128 k in a stage of narrow weights, one for each team; 128 bytes of k in others.
  static constexpr int kBlocksOfStage = kNarrow ? 2 : 1;
  static constexpr int kBlockBytes =
      kNarrow ? NarrowBlockBytes(kInt4Fp8 ? WeightType::kInt4Fp8 : WeightType::kInt4)
              : kBlocks * 16384;
  static constexpr int kWeightBytes = kBlocksOfStage * kBlockBytes;
  static constexpr int kPartsOfBlock = kNarrow && !kInt4Fp8 ? 2 : 1;  // of rows, 128 bytes each
  static constexpr int kRowParts = kBlocksOfStage * kPartsOfBlock;
  static constexpr int kStageBytes = StageRing::RowsBehind(kWeightBytes) + kRows * kRowParts * 128;
  static constexpr int kScaleOfRow = kFp8 ? 4 : kInt4Fp8 ? 8 : 0;  // of a block
  static constexpr int kScaleBytes = kRows * kScaleOfRow * kBlocksOfStage;
  // A token's row of the transposed tile: of a warpgroup in BF16, or of the CTA in FP8; padded.
  static constexpr int kTransposedRow =
      kEpilogue == Epilogue::kPlain ? (64 * kBlocks + 8) * 2 : 128 + 16;
  static constexpr int kThreads = kNarrow ? kNarrowThreads : kGemmThreads;
  static constexpr int kTransposedBytes = kNarrow ? 2 * NarrowSums<kRows>::kTeamBytes
                                          : kEpilogue == Epilogue::kFp32 ? 0
                                          : kEpilogue == Epilogue::kPlain
                                              ? 2 * kRows * kTransposedRow
                                              : kRows * kTransposedRow;
  static constexpr int kAccumulators = kRows / 2;

  static constexpr int FixedBytes(int groups) {
    return 1024 + kTransposedBytes + kRows * 4 + GroupTable::Bytes(groups) + 64;
  }
  static constexpr int StagesFor(int groups) {
    return (kSharedBytesMax - FixedBytes(groups)) / (kStageBytes + kScaleBytes + 16);
  }
  static constexpr int kStagesMin = StagesFor(kGroupsMax);
  static constexpr int kGatherDepth =
      kStagesMin > kGatherDepthMax + 1 ? kGatherDepthMax : kStagesMin - 2;
  static_assert(kGatherDepth >= 2);
};

// Scales of weight blocks along k, a block in each lane, fetched 32 blocks ahead.
template <int kCount>
struct WeightScales {
  float now[kCount];
  float next[kCount];
  const float* at[kCount];

  // Each lane fetches the scales of one block of k: `from` and the 31 after it, below `k_blocks`.
  __device__ __forceinline__ void Prefetch(int from, int k_blocks) {
    const int block = from + static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int i = 0; i < kCount; i++) next[i] = block < k_blocks ? __ldg(at[i] + block) : 0.0F;
  }
  __device__ __forceinline__ void Take() {
#pragma unroll
    for (int i = 0; i < kCount; i++) now[i] = next[i];
  }
};

template <int kRows, MmaType kType, int kBlocks, Epilogue kEpilogue>
class Multiplier {
  using Shape = GemmShape<kRows, kType, kBlocks, kEpilogue>;
  using Sum = MmaSum<kType>;
  static constexpr int kScaleRows = kEpilogue == Epilogue::kSwiglu ? 2 : 1;

 public:
  __device__ __forceinline__ Multiplier(const GemmArguments& args, const StageRing& ring,
                                        const GroupTable& table, std::uint32_t transposed,
                                        std::uint32_t largest)
      : args_(args), ring_(ring), table_(table), transposed_(transposed), largest_(largest) {}

  __device__ __forceinline__ void Run(UnitWalk walk, int dropped) {
    for (int i = 0; i < dropped; i++) {
      WaitBarrier(ring_.Full(at_.stage), at_.phase);
      Release();
    }
    const int units = walk.count();
    int index = static_cast<int>(blockIdx.x);
    if (index >= units) return;
    Unit unit = walk.Seek(index);
    PointScales(unit);
    scales_.Prefetch(0, args_.k_blocks);
    while (true) {
      const Unit now = unit;
      index += static_cast<int>(gridDim.x);
      const bool last = index >= units;
      if (!last) unit = walk.Seek(index);
      const int rows = min(kRows, table_.counts[now.group] - now.row_tile * kRows);
      const int slot = table_.offsets[now.group] + now.row_tile * kRows;
      LoadRowScales(slot, rows);
      Accumulate(unit, last);
      if constexpr (kEpilogue == Epilogue::kPlain) {
        StorePlain(now.weight_tile, slot, rows);
      } else if constexpr (kEpilogue == Epilogue::kFp32) {
        StoreSums(now.weight_tile, slot, rows);
      } else {
        StoreHidden(now.weight_tile, slot, rows);
      }
      if (last) return;
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

  // The sums over all k of a unit, and the first scales of the `next` one.
  __device__ __forceinline__ void Accumulate(const Unit& next, bool last) {
#pragma unroll
    for (int b = 0; b < kBlocks; b++) {
#pragma unroll
      for (Sum& sum : sums_[b]) sum = 0;
    }
#pragma unroll 1
    for (int k = 0; k < args_.k_blocks; k++) {
      if constexpr (Shape::kFp8) {
        if (k % 32 == 0) {
          scales_.Take();
          if (k + 32 < args_.k_blocks) {
            scales_.Prefetch(k + 32, args_.k_blocks);
          } else if (!last) {
            PointScales(next);
            scales_.Prefetch(0, args_.k_blocks);
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
      of_weights[i] = __shfl_sync(kWholeWarp, scales_.now[i], block);
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

  // Transposes through shared memory, each warpgroup for itself, and stores 16 bytes at a time.
  __device__ __forceinline__ void StorePlain(int weight_tile, int slot, int rows) {
    const std::uint32_t tile = transposed_ + group_of_warps() * kRows * Shape::kTransposedRow;
    const int warp = (threadIdx.x >> 5) & 3;
    SyncNamed(2 + group_of_warps(), 128);  // the tile before is stored
#pragma unroll
    for (int b = 0; b < kBlocks; b++) {
#pragma unroll
      for (int i = 0; i < Shape::kAccumulators; i++) {
        const int n = b * 64 + warp * 16 + (lane() >> 2) + 8 * ((i >> 1) & 1);
        const int row = 8 * (i >> 2) + 2 * (lane() & 3) + (i & 1);
        StoreShared16(tile + row * Shape::kTransposedRow + n * 2,
                      __bfloat16_as_ushort(__float2bfloat16(sums_[b][i])));
      }
    }
    SyncNamed(2 + group_of_warps(), 128);
    constexpr int kChunks = 8 * kBlocks;  // of a row
    std::byte* out = args_.out + (weight_tile * 128 + group_of_warps() * 64) * kBlocks * 2;
    for (int i = threadIdx.x & 127; i < rows * kChunks; i += 128) {
      const int row = i / kChunks;
      const int chunk = i % kChunks;
      *reinterpret_cast<uint4*>(out + (slot + row) * args_.out_stride + chunk * 16) =
          LoadShared128(tile + row * Shape::kTransposedRow + chunk * 16);
    }
  }

  // The scales of INT8 rows, one each: of this thread's rows of a tile, 8 j + 2 (lane % 4) + c.
  __device__ __forceinline__ void LoadRowScales(int slot, int rows) {
    if constexpr (kType == MmaType::kInt8) {
#pragma unroll
      for (int j = 0; j < kRows / 8; j++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
          const int at = 8 * j + 2 * (lane() & 3) + c;
          if (at >= rows) continue;
          const int row = args_.row_index == nullptr ? slot + at : args_.row_index[slot + at];
          row_scales_[j][c] = *reinterpret_cast<const float*>(args_.rows + row * args_.row_stride +
                                                              args_.scale_offset);
        }
      }
    }
  }

  // Each store of a warp fills four sectors of 32 bytes, so sums need no transposition.
  __device__ __forceinline__ void StoreSums(int weight_tile, int slot, int rows) {
    const int warp = (threadIdx.x >> 5) & 3;
    const int column =
        weight_tile * 128 * kBlocks + group_of_warps() * 64 * kBlocks + warp * 16 + (lane() >> 2);
#pragma unroll
    for (int i = 0; i < Shape::kAccumulators; i++) {
      const int row = 8 * (i >> 2) + 2 * (lane() & 3) + (i & 1);
      if (row >= rows) continue;
      auto* out = reinterpret_cast<float*>(args_.out + (slot + row) * args_.out_stride);
#pragma unroll
      for (int b = 0; b < kBlocks; b++) {
        float sum;
        if constexpr (kType == MmaType::kInt8) {
          sum = __fmul_rn(__int2float_rn(sums_[b][i]), row_scales_[i >> 2][i & 1]);
        } else {
          sum = sums_[b][i];
        }
        out[column + b * 64 + 8 * ((i >> 1) & 1)] = sum;
      }
    }
  }

  // silu(gate) * up of 128 hidden values, quantized together.
  __device__ __forceinline__ void StoreHidden(int weight_tile, int slot, int rows) {
    if constexpr (kEpilogue == Epilogue::kSwiglu) {
      const int warp = (threadIdx.x >> 5) & 3;
      const int column = group_of_warps() * 64 + warp * 16 + (lane() >> 2);
      if (threadIdx.x < kRows) StoreShared32(largest_ + threadIdx.x * 4, 0);
      SyncNamed(1, 256);  // and the tile before is stored
#pragma unroll
      for (int j = 0; j < kRows / 8; j++) {
#pragma unroll
        for (int c = 0; c < 2; c++) {
          float amax = 0.0F;
#pragma unroll
          for (int i = 4 * j + c; i < 4 * j + 4; i += 2) {
            const float gate = sums_[0][i];
            sums_[0][i] = __fdividef(gate, 1.0F + __expf(-gate)) * sums_[1][i];
            amax = fmaxf(amax, fabsf(sums_[0][i]));
          }
          amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 4));
          amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 8));
          amax = fmaxf(amax, __shfl_xor_sync(kWholeWarp, amax, 16));
          if (lane() < 4) MaxShared(largest_ + (8 * j + 2 * lane() + c) * 4, __float_as_uint(amax));
        }
      }
      SyncNamed(1, 256);
#pragma unroll
      for (int j = 0; j < kRows / 8; j++) {
        const int row = 8 * j + 2 * (lane() & 3);
        const float2 amax = LoadSharedFloat2(largest_ + row * 4);
        const float x = __fdiv_rn(kE4m3Largest, fmaxf(amax.x, kFp8AmaxMin));
        const float y = __fdiv_rn(kE4m3Largest, fmaxf(amax.y, kFp8AmaxMin));
#pragma unroll
        for (int h = 0; h < 2; h++) {
          const std::uint32_t codes =
              E4m3Pair(sums_[0][4 * j + 2 * h] * x, sums_[0][4 * j + 2 * h + 1] * y);
          const std::uint32_t at = transposed_ + row * Shape::kTransposedRow + column + 8 * h;
          StoreShared8(at, codes & 0xffU);
          StoreShared8(at + Shape::kTransposedRow, codes >> 8);
        }
      }
      SyncNamed(1, 256);
      if (threadIdx.x < rows) {
        const float amax = fmaxf(LoadSharedFloat(largest_ + threadIdx.x * 4), kFp8AmaxMin);
        auto* scales = reinterpret_cast<float*>(
            args_.out + (slot + threadIdx.x) * args_.out_stride + args_.out_scale_offset);
        scales[weight_tile] = __fdiv_rn(amax, kE4m3Largest);
      }
      for (int i = threadIdx.x; i < rows * 8; i += 256) {
        *reinterpret_cast<uint4*>(args_.out + (slot + i / 8) * args_.out_stride +
                                  weight_tile * 128 + i % 8 * 16) =
            LoadShared128(transposed_ + i / 8 * Shape::kTransposedRow + i % 8 * 16);
      }
      SyncNamed(1, 256);  // largest_ is read before the next tile clears it
    }
  }

  const GemmArguments& args_;
  const StageRing& ring_;
  const GroupTable& table_;
  const std::uint32_t transposed_;
  const std::uint32_t largest_;
  RingPosition at_{};
  WeightScales<kScaleRows> scales_{};
  Sum sums_[kBlocks][Shape::kAccumulators];
  float row_scales_[kRows / 8][2];  // of INT8
};

// The blocks along k of a tile of a group's weights, one after the other.
template <typename Shape, Epilogue kEpilogue>
__device__ __forceinline__ const std::byte* TileOf(const GemmArguments& args, int group, int tile) {
  const std::int64_t tile_bytes = static_cast<std::int64_t>(args.k_blocks) * Shape::kBlockBytes;
  if constexpr (kEpilogue == Epilogue::kFp32) {
    if (args.weights_of_group != nullptr) return args.weights_of_group[group] + tile * tile_bytes;
  }
  return args.weights + (static_cast<std::int64_t>(group) * args.weight_tiles + tile) * tile_bytes;
}

// The stages of a unit, of which the last may hold fewer blocks.
template <typename Shape>
__device__ __forceinline__ int StagesOfUnit(const GemmArguments& args) {
  return (args.k_blocks + Shape::kBlocksOfStage - 1) / Shape::kBlocksOfStage;
}
template <typename Shape>
__device__ __forceinline__ int BlocksOfStage(const GemmArguments& args, int stage) {
  return min(Shape::kBlocksOfStage, args.k_blocks - stage * Shape::kBlocksOfStage);
}

// Streams the weights of all units; the first `fetched` stages of the first unit are on their way.
// A whole warp finds the units, its first thread fetches.
template <typename Shape, Epilogue kEpilogue>
__device__ __forceinline__ void StreamWeights(const GemmArguments& args, UnitWalk walk, int fetched,
                                              WeightStream& stream) {
  const int units = walk.count();
  for (int index = blockIdx.x; index < units; index += gridDim.x) {
    const Unit unit = walk.Seek(index);
    const std::byte* from = TileOf<Shape, kEpilogue>(args, unit.group, unit.weight_tile);
    if (threadIdx.x % 32 == 0) {
      for (int s = fetched; s < StagesOfUnit<Shape>(args); s++) {
        stream.Fetch(from + static_cast<std::int64_t>(s) * Shape::kWeightBytes,
                     BlocksOfStage<Shape>(args, s) * Shape::kBlockBytes);
      }
    }
    __syncwarp();
    fetched = 0;
  }
}

template <typename Shape, int kRows>
using GatherOf = RowGather<kRows, Shape::kGatherDepth, Shape::kRowParts>;

// The stages of a unit from `first` on, below `end`.
template <typename Shape, int kRows>
__device__ __forceinline__ void GatherStages(const GemmArguments& args,
                                             const RowPointers<kRows>& from, int first, int end,
                                             GatherOf<Shape, kRows>& gather) {
#pragma unroll 1
  for (int s = first; s < end; s++) {
    gather.template Fetch<Shape::kScaleOfRow, Shape::kBlocksOfStage>(
        from, s, BlocksOfStage<Shape>(args, s) * Shape::kPartsOfBlock);
  }
}

// `list` is the first unit's if there is one, of which `fetched` stages are on their way.
template <typename Shape, int kRows>
__device__ __forceinline__ void GatherRows(const GemmArguments& args, const GroupTable& table,
                                           UnitWalk walk, RowList<kRows>& list, int fetched,
                                           GatherOf<Shape, kRows>& gather) {
  const int thread = static_cast<int>(threadIdx.x) - kGatherFirst;
  const int units = walk.count();
  for (int index = blockIdx.x; index < units; index += gridDim.x) {
    const RowPointers<kRows> from(list, args.rows, args.row_stride, args.rows + args.scale_offset,
                                  args.row_stride, gather.chunk());
    if (index + static_cast<int>(gridDim.x) < units) {  // the next unit's list
      const Unit next = walk.Seek(index + gridDim.x);
      list.Load(args.row_index, table.offsets[next.group] + next.row_tile * kRows,
                min(kRows, table.counts[next.group] - next.row_tile * kRows), thread);
    }
    GatherStages<Shape, kRows>(args, from, fetched, StagesOfUnit<Shape>(args), gather);
    fetched = 0;
  }
  gather.Flush();
}

template <int kRows, MmaType kType, int kBlocks, Epilogue kEpilogue>
__global__ void __launch_bounds__((GemmShape<kRows, kType, kBlocks, kEpilogue>::kThreads), 1)
    GroupedGemmKernel(const __grid_constant__ GemmArguments args) {
  using Shape = GemmShape<kRows, kType, kBlocks, kEpilogue>;
  extern __shared__ std::byte shared[];
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const std::uint32_t base = SharedAddress(shared);
  const std::uint32_t aligned = (base + 1023) & ~1023U;
  const std::uint32_t scales_at = aligned + args.stages * Shape::kStageBytes;
  const std::uint32_t transposed = scales_at + args.stages * Shape::kScaleBytes;
  const std::uint32_t largest = transposed + Shape::kTransposedBytes;
  const std::uint32_t full = (largest + kRows * 4 + 15) & ~15U;
  const StageRing ring = {aligned,
                          scales_at,
                          full,
                          full + 8 * args.stages,
                          Shape::kStageBytes,
                          Shape::kWeightBytes,
                          Shape::kScaleBytes,
                          args.stages};
  const GroupTable table(shared + (full + 16 * args.stages - base), args.group_count);
  if (threadIdx.x == 0) {
    ring.Init(Shape::kNarrow ? kNarrowWarps : kMultiplyingWarps);
    FenceBarrierInit();
  }
  __syncthreads();
  AllowDependentLaunch();

  // The unit of this CTA if every group has one tile of rows.
  const int tiles = args.weight_tiles;
  const int cta = static_cast<int>(blockIdx.x);
  const Unit guess = {cta / tiles, cta % tiles, 0};
  const bool guesses = guess.group < args.group_count;
  const int early = guesses ? min(args.early, StagesOfUnit<Shape>(args)) : 0;
  WeightStream stream(ring, args.window);
  if (threadIdx.x == 256 && early > 0) {
    const std::byte* from = TileOf<Shape, kEpilogue>(args, guess.group, guess.weight_tile);
    for (int s = 0; s < early; s++) {
      stream.FetchEarly(from + s * Shape::kWeightBytes,
                        BlocksOfStage<Shape>(args, s) * Shape::kBlockBytes);
    }
  }
  __syncwarp();
  WaitForPrecedingKernels();
  // The guess's rows, before the table is made.
  RowList<kRows> list = {};
  const bool gathers = warp == 9 || warp == 10;
  const int thread = static_cast<int>(threadIdx.x) - kGatherFirst;
  GatherOf<Shape, kRows> gather(ring, thread);
  if (gathers && guesses) {
    int count = args.groups.counts[guess.group];
    if (args.groups.offsets == nullptr) count = min(count, args.groups.slots);
    const int slot = args.groups.offsets == nullptr ? guess.group * args.groups.slots
                                                    : args.groups.offsets[guess.group];
    list.Load(args.row_index, slot, min(count, kRows), thread);
    const RowPointers<kRows> from(list, args.rows, args.row_stride, args.rows + args.scale_offset,
                                  args.row_stride, gather.chunk());
    GatherStages<Shape, kRows>(args, from, 0, early, gather);
    gather.Flush();
  }
  if (warp < kMultiplyingWarps) {
    FillGroupTable<kRows>(args.groups, table);
  } else {
    WaitForGroupTable();
  }
  UnitWalk walk(table, tiles);
  bool right = false;
  if (cta < walk.count()) {
    const Unit first = walk.Seek(cta);
    right =
        first.group == guess.group && first.weight_tile == guess.weight_tile && first.row_tile == 0;
    if (gathers && !right) {
      list.Load(args.row_index, table.offsets[first.group] + first.row_tile * kRows,
                min(kRows, table.counts[first.group] - first.row_tile * kRows), thread);
    }
  }
  const int dropped = right ? 0 : early;
  const int fetched = early - dropped;

  if (warp < kMultiplyingWarps || (Shape::kNarrow && warp >= kSecondTeamFirst)) {
    using Work = std::conditional_t<Shape::kNarrow, NarrowMultiplier<kRows, kType>,
                                    Multiplier<kRows, kType, kBlocks, kEpilogue>>;
    Work(args, ring, table, transposed, largest).Run(walk, dropped);
  } else if (Shape::kNarrow && warp == kStoringWarp) {
    StoreNarrowSums<kRows, kType>(args, table, walk, transposed);
  } else if (warp == 8) {
    StreamWeights<Shape, kEpilogue>(args, walk, fetched, stream);
  } else if (gathers) {
    GatherRows<Shape, kRows>(args, table, walk, list, fetched, gather);
  }
}

template <int kRows, MmaType kType, int kBlocks, Epilogue kEpilogue>
cudaError_t LaunchGemm(GemmArguments args, int ctas, bool dependent, cudaStream_t stream) {
  using Shape = GemmShape<kRows, kType, kBlocks, kEpilogue>;
  args.stages = Shape::StagesFor(args.group_count);
  args.window = min(args.window, args.stages);
  args.early = min(args.early, args.stages);
  const auto kernel = GroupedGemmKernel<kRows, kType, kBlocks, kEpilogue>;
  const cudaError_t raised =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytesMax);
  if (raised != cudaSuccess) return raised;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(ctas));
  config.blockDim = dim3(Shape::kThreads);
  config.dynamicSmemBytes = kSharedBytesMax;
  config.stream = stream;
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, args);
}

}  // namespace switchyard::cuda
