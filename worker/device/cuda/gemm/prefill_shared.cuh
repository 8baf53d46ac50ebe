// The warps of a prefill kernel share the launch's arguments and the block's memory.
#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "worker/device/cuda/gemm/prefill_gemm.h"
#include "worker/device/cuda/gemm/prefill_tiles.cuh"

namespace switchyard::cuda {

inline constexpr int kStageDepth = 128;  // bytes of K
inline constexpr int kTileColumns = 256;
inline constexpr int kBoxRows = 128;  // of B: half of the columns
inline constexpr int kBoxBytes = kBoxRows * kStageDepth;
inline constexpr int kConsumerWarps = 8;
inline constexpr int kGatherWarps = 3;
inline constexpr int kPrefillThreads = 32 * (kConsumerWarps + 4);
inline constexpr int kStoreBytes = 16 * 128;  // 16 rows x 64 columns of BF16
inline constexpr int kUnitSlots = 8;  // more than the tiles by which the blocks of a cluster differ

// A stage holds a note beside the operands: the consumers act on it.
enum class StageKind : int { kEnd = 0, kSkip = 1, kStore = 2 };
struct alignas(16) StageNote {
  StageKind kind;
  int row;     // of the tile
  int column;  // of out
  int unused[3];
  float2 b_scales;  // of the boxes
};

template <int Stages>
struct alignas(1024) PrefillShared {
  struct alignas(1024) Operands {
    std::uint8_t a[kTileRows * kStageDepth];
    std::uint8_t b[2][kBoxBytes];
  } stage[Stages];
  std::uint8_t out[kConsumerWarps][kStoreBytes];
  float a_scales[Stages][kTileRows];
  StageNote note[Stages];
  std::uint64_t full[Stages];
  std::uint64_t empty[Stages];
  std::uint64_t unit_full[kUnitSlots];
  int unit[kUnitSlots];
  std::uint64_t gather_full[kUnitSlots];
  int gather_row[kUnitSlots];  // first row of a tile for the gathering warps, -1: the end
};

// The products that run on a tile, and the form in which their sums leave it.
enum class PrefillKind {
  kBf16,       // BF16 products, BF16 out
  kFp8,        // FP8 products, BF16 out
  kFp8Swiglu,  // FP8 products of gate (box 0) and up (box 1), silu(gate) * up, FP8 out
};

struct PrefillArgs {
  const std::int32_t* row_ends;
  std::uint32_t* units_taken;
  int experts;
  int rows_max;
  int column_blocks;
  int n;  // columns of out
  int k_blocks;
  int band;
  // Box h of column block c begins at row b_step * c + b_second * h of B's map h, whose 128-row
  // blocks have scales (FP8) at b_scales[h], b_blocks of them, b_expert_blocks from one expert to
  // the next.
  int b_step;
  int b_second;
  int b_blocks;
  int b_expert_blocks;
  const float* b_scales[2];
  const float* a_scales;      // FP8
  std::int64_t a_scales_row;  // values from one block of K to the next, with gathered rows too
  PrefillGather gather;
  const void* gathered;         // the `a` of gathered rows
  std::int64_t out_scales_row;  // kFp8Swiglu, likewise
  void* out;
  float* out_scales;  // kFp8Swiglu
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

}  // namespace switchyard::cuda
