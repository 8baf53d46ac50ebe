// GemmShape says what a CTA of a grouped product at decode (grouped_gemm.cuh) has in shared memory,
// which depends on the kind of the product.
#pragma once

#include "worker/device/cuda/decode/group_table.cuh"
#include "worker/device/cuda/decode/grouped_gemm.h"
#include "worker/device/cuda/decode/narrow_multiplier.cuh"
#include "worker/device/cuda/decode/row_gather.cuh"
#include "worker/device/cuda/decode/stage_ring.cuh"
#include "worker/device/cuda/decode/wgmma.cuh"
#include "worker/device/cuda/packed_weights.h"

namespace switchyard::cuda {

constexpr int kGemmThreads = 384;
constexpr int kSharedBytesMax = 232448;  // of a CTA on sm_90

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

}  // namespace switchyard::cuda
