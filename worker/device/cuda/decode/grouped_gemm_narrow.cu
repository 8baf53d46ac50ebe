// INT4 and NVFP4 weights, BF16 or E4M3 rows, FP32 output.
#include "worker/device/cuda/decode/grouped_gemm.cuh"
#include "worker/device/cuda/decode/grouped_gemm_instances.h"

namespace switchyard::cuda {
namespace {

template <MmaType kType>
GemmLaunch Find(int row_tile) {
  switch (row_tile) {
    case 24:
      return LaunchGemm<24, kType, 1, Epilogue::kFp32>;
    case 32:
      return LaunchGemm<32, kType, 1, Epilogue::kFp32>;
    default:
      return nullptr;
  }
}

}  // namespace

GemmLaunch FindNarrowGemm(WeightType type, int row_tile) {
  if (type == WeightType::kInt4Fp8) return Find<MmaType::kInt4Fp8>(row_tile);
  return type == WeightType::kInt4 ? Find<MmaType::kInt4>(row_tile)
                                   : Find<MmaType::kE2m1>(row_tile);
}

}  // namespace switchyard::cuda
