// Which instances of the grouped product's kernel are compiled, and where; inside
// worker/device/cuda.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/decode/gemm_arguments.h"
#include "worker/device/cuda/packed_weights.h"

namespace switchyard::cuda {

using GemmLaunch = cudaError_t (*)(const GemmArguments& args, int ctas, bool dependent,
                                   cudaStream_t stream);

// Null where there is none: for row tiles other than 24, 32 and 64.
GemmLaunch FindFp8Gemm(WeightOrder order, int row_tile);
GemmLaunch FindFp8SwigluGemm(int row_tile);
GemmLaunch FindBf16Gemm(WeightOrder order, int row_tile);
// Its weights are in the order kRows128, its output is FP32.
GemmLaunch FindFp32Gemm(WeightType type, int row_tile);

// Likewise, and null for tiles of 64 rows: two teams of warps have no registers for them.
GemmLaunch FindNarrowGemm(WeightType type, int row_tile);

inline GemmLaunch FindGemm(WeightType type, WeightOrder order, int row_tile) {
  if (type == WeightType::kBf16) return FindBf16Gemm(order, row_tile);
  if (order == WeightOrder::kGateUp256) return FindFp8SwigluGemm(row_tile);
  return FindFp8Gemm(order, row_tile);
}

}  // namespace switchyard::cuda
