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

#include "worker/device/cuda/decode/gemm_arguments.h"
#include "worker/device/cuda/decode/gemm_shape.cuh"
#include "worker/device/cuda/decode/group_table.cuh"
#include "worker/device/cuda/decode/multiplier.cuh"
#include "worker/device/cuda/decode/narrow_multiplier.cuh"
#include "worker/device/cuda/decode/piece_streams.cuh"
#include "worker/device/cuda/decode/row_gather.cuh"
#include "worker/device/cuda/decode/stage_ring.cuh"
#include "worker/device/cuda/decode/unit_pieces.cuh"
#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

template <int kRows, MmaType kType, int kBlocks, Epilogue kEpilogue, bool kCuts>
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

  Piece guess;
  const bool guesses = Guess<kCuts>(args, guess);
  const int early = guesses ? min(args.early, EndStage<Shape>(guess)) : 0;
  WeightStream stream(ring, args.window);
  if (threadIdx.x == 256 && early > 0) {
    const std::byte* from =
        TileOf<Shape, kEpilogue>(args, guess.unit.group, guess.unit.weight_tile);
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
    const int group = guess.unit.group;
    int count = args.groups.counts[group];
    if (args.groups.offsets == nullptr) count = min(count, args.groups.slots);
    const int slot =
        args.groups.offsets == nullptr ? group * args.groups.slots : args.groups.offsets[group];
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
  PieceWalk<kCuts> walk(table, args.weight_tiles, args.k_blocks);
  Piece first = {};
  const bool works = walk.Next(first);
  const bool right = works && guesses && first == guess;
  if (gathers && works && !right) LoadList(args, table, first.unit, list);
  const int dropped = right ? 0 : early;
  const int fetched = early - dropped;

  if (warp < kMultiplyingWarps || (Shape::kNarrow && warp >= kSecondTeamFirst)) {
    if constexpr (Shape::kNarrow) {
      NarrowMultiplier<kRows, kType>(args, ring, table, transposed, largest)
          .Run(UnitWalk(table, args.weight_tiles), dropped);
    } else {
      Multiplier<kRows, kType, kBlocks, kEpilogue, kCuts>(args, ring, table, transposed, largest)
          .Run(works, first, walk, dropped);
    }
  } else if (Shape::kNarrow && warp == kStoringWarp) {
    StoreNarrowSums<kRows, kType>(args, table, UnitWalk(table, args.weight_tiles), transposed);
  } else if (warp == 8 && works) {
    StreamWeights<Shape, kEpilogue>(args, first, walk, fetched, stream);
  } else if (gathers && works) {
    GatherRows<Shape, kRows>(args, table, first, walk, list, fetched, gather);
  }
}

template <int kRows, MmaType kType, int kBlocks, Epilogue kEpilogue, bool kCuts>
cudaError_t LaunchCutGemm(GemmArguments args, int ctas, bool dependent, cudaStream_t stream) {
  using Shape = GemmShape<kRows, kType, kBlocks, kEpilogue>;
  args.stages = Shape::StagesFor(args.group_count);
  args.window = min(args.window, args.stages);
  args.early = min(args.early, args.stages);
  const auto kernel = GroupedGemmKernel<kRows, kType, kBlocks, kEpilogue, kCuts>;
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

// Two kernels, because one that could cut takes 1 % longer even where it does not.
template <int kRows, MmaType kType, int kBlocks, Epilogue kEpilogue>
cudaError_t LaunchGemm(const GemmArguments& args, int ctas, bool dependent, cudaStream_t stream) {
  if constexpr (!GemmShape<kRows, kType, kBlocks, kEpilogue>::kNarrow) {
    if (args.carry != nullptr) {
      return LaunchCutGemm<kRows, kType, kBlocks, kEpilogue, true>(args, ctas, dependent, stream);
    }
  }
  return LaunchCutGemm<kRows, kType, kBlocks, kEpilogue, false>(args, ctas, dependent, stream);
}

}  // namespace switchyard::cuda