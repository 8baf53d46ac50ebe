// The warps of a prefill kernel share the launch's arguments and the block's memory.
#pragma once

#include <cstddef>
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
enum class StageKind : int { kEnd = 0, kTile = 1 };
struct alignas(16) StageNote {
  StageKind kind;
  int row;     // of the tile
  int rows;    // that are stored: 0 where the tile only keeps its block in step with the other one
  int column;  // of out
  int unused[2];
  float2 b_scales;  // of the boxes
};

inline constexpr int kScaleRows = kTileRows + 4;  // of A: copies begin at multiples of 16 bytes

template <int Stages>
struct alignas(1024) PrefillShared {
  struct alignas(1024) Operands {
    std::uint8_t a[kTileRows * kStageDepth];
    std::uint8_t b[2][kBoxBytes];
  } stage[Stages];
  std::uint8_t out[kConsumerWarps][kStoreBytes];
  float a_scales[Stages][kScaleRows];
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
  // The kinds below multiply experts that were packed one by one (prefill_packed.h).
  kBf16Sums,  // FP32 out
  kFp8Sums,
  kInt8Sums,     // of INT8 products, by the scale of the row
  kBf16Answers,  // BF16 out
  kFp8Answers,
  kBf16Hidden,  // silu(gate) * up, BF16 out
  kFp8Hidden,   // likewise, FP8 out
};
__host__ __device__ constexpr bool IsFp8(PrefillKind kind) {
  return kind == PrefillKind::kFp8 || kind == PrefillKind::kFp8Swiglu ||
         kind == PrefillKind::kFp8Sums || kind == PrefillKind::kFp8Answers ||
         kind == PrefillKind::kFp8Hidden;
}
__host__ __device__ constexpr bool IsGated(PrefillKind kind) {
  return kind == PrefillKind::kFp8Swiglu || kind == PrefillKind::kBf16Hidden ||
         kind == PrefillKind::kFp8Hidden;
}
__host__ __device__ constexpr bool IsPacked(PrefillKind kind) {
  return kind >= PrefillKind::kBf16Sums;
}
__host__ __device__ constexpr bool HasSumsOut(PrefillKind kind) {
  return kind == PrefillKind::kBf16Sums || kind == PrefillKind::kFp8Sums ||
         kind == PrefillKind::kInt8Sums;
}

struct PrefillArgs {
  const std::int32_t* row_ends;
  const std::int32_t* counts;  // packed experts; row_ends otherwise
  const std::int32_t* offsets;
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
  const std::byte* const* b_of_expert;  // packed experts: blocks of kBoxBytes, K fastest
  const float* const* b_scales_of_expert;
  const float* a_scales;      // FP8, INT8
  std::int64_t a_scales_row;  // values from one block of K to the next, with gathered rows too;
                              // INT8: from one row to the next
  PrefillGather gather;
  const void* gathered;         // the `a` of gathered rows
  std::int64_t out_scales_row;  // FP8 out, likewise
  void* out;
  std::int64_t out_stride;  // values from row to row
  float* out_scales;        // FP8 out
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
