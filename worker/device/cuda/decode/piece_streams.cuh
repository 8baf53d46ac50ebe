// The warps that fetch weights and rows of the pieces of a CTA (unit_pieces.cuh) into the stages of
// a grouped product at decode.
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/decode/gemm_arguments.h"
#include "worker/device/cuda/decode/gemm_shape.cuh"
#include "worker/device/cuda/decode/group_table.cuh"
#include "worker/device/cuda/decode/row_gather.cuh"
#include "worker/device/cuda/decode/stage_ring.cuh"
#include "worker/device/cuda/decode/unit_pieces.cuh"

namespace switchyard::cuda {

// The blocks along k of a tile of a group's weights, one after the other.
template <typename Shape, Epilogue kEpilogue>
__device__ __forceinline__ const std::byte* TileOf(const GemmArguments& args, int group, int tile) {
  const std::int64_t tile_bytes = static_cast<std::int64_t>(args.k_blocks) * Shape::kBlockBytes;
  if constexpr (kEpilogue == Epilogue::kFp32) {
    if (args.weights_of_group != nullptr) return args.weights_of_group[group] + tile * tile_bytes;
  }
  return args.weights + (static_cast<std::int64_t>(group) * args.weight_tiles + tile) * tile_bytes;
}

// The stages of a piece, of which the last may hold fewer blocks. Pieces of narrow weights are
// units, so a stage begins where the piece does.
template <typename Shape>
__device__ __forceinline__ int FirstStage(const Piece& piece) {
  return piece.first / Shape::kBlocksOfStage;
}
template <typename Shape>
__device__ __forceinline__ int EndStage(const Piece& piece) {
  return (piece.end + Shape::kBlocksOfStage - 1) / Shape::kBlocksOfStage;
}
template <typename Shape>
__device__ __forceinline__ int BlocksOfStage(const GemmArguments& args, int stage) {
  return min(Shape::kBlocksOfStage, args.k_blocks - stage * Shape::kBlocksOfStage);
}

// Streams the weights of `piece` and those behind it; its first `fetched` stages are on their way.
// A whole warp finds the units, its first thread fetches.
template <typename Shape, Epilogue kEpilogue, bool kCuts>
__device__ __forceinline__ void StreamWeights(const GemmArguments& args, Piece piece,
                                              PieceWalk<kCuts> walk, int fetched,
                                              WeightStream& stream) {
  do {
    const std::byte* from =
        TileOf<Shape, kEpilogue>(args, piece.unit.group, piece.unit.weight_tile);
    if (threadIdx.x % 32 == 0) {
      for (int s = FirstStage<Shape>(piece) + fetched; s < EndStage<Shape>(piece); s++) {
        stream.Fetch(from + static_cast<std::int64_t>(s) * Shape::kWeightBytes,
                     BlocksOfStage<Shape>(args, s) * Shape::kBlockBytes);
      }
    }
    __syncwarp();
    fetched = 0;
  } while (walk.Next(piece));
}

template <typename Shape, int kRows>
using GatherOf = RowGather<kRows, Shape::kGatherDepth, Shape::kRowParts>;

// The stages of a piece from `first` on, below `end`.
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

template <int kRows>
__device__ __forceinline__ void LoadList(const GemmArguments& args, const GroupTable& table,
                                         const Unit& unit, RowList<kRows>& list) {
  list.Load(args.row_index, table.offsets[unit.group] + unit.row_tile * kRows,
            min(kRows, table.counts[unit.group] - unit.row_tile * kRows),
            static_cast<int>(threadIdx.x) - kGatherFirst);
}

// Of `piece` and those behind it. `list` is that of `piece`, whose first `fetched` stages are on
// their way.
template <typename Shape, int kRows, bool kCuts>
__device__ __forceinline__ void GatherRows(const GemmArguments& args, const GroupTable& table,
                                           Piece piece, PieceWalk<kCuts> walk, RowList<kRows>& list,
                                           int fetched, GatherOf<Shape, kRows>& gather) {
  bool more = true;
  while (more) {
    const int first = FirstStage<Shape>(piece) + fetched;
    const int end = EndStage<Shape>(piece);
    const RowPointers<kRows> from(list, args.rows, args.row_stride, args.rows + args.scale_offset,
                                  args.row_stride, gather.chunk());
    more = walk.Next(piece);
    if (more) LoadList(args, table, piece.unit, list);
    GatherStages<Shape, kRows>(args, from, first, end, gather);
    fetched = 0;
  }
  gather.Flush();
}

// The first piece of this CTA if every group has one tile of rows; false if there is none then.
template <bool kCuts>
__device__ __forceinline__ bool Guess(const GemmArguments& args, Piece& piece) {
  const int tiles = args.weight_tiles;
  const CtaShare<kCuts> share(args.group_count * tiles, args.k_blocks);
  int unit = static_cast<int>(blockIdx.x);
  piece.first = 0;
  piece.end = args.k_blocks;
  if (unit >= share.rounds_end) {
    if (share.head_end > 0) {
      unit = share.head_unit;
      piece.end = share.head_end;
    } else if (share.wholes > 0) {
      unit = share.whole_unit;
    } else {
      return false;
    }
  }
  piece.unit = {unit / tiles, unit % tiles, 0};
  return true;
}

}  // namespace switchyard::cuda
