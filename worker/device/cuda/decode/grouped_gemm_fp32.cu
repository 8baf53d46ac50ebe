// FP32 output, for the steps between the products of an expert (steps/).
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
    case 64:
      return LaunchGemm<64, kType, 1, Epilogue::kFp32>;
    default:
      return nullptr;
  }
}

}  // namespace

GemmLaunch FindFp32Gemm(WeightType type, int row_tile) {
  switch (type) {
    case WeightType::kFp8:
      return Find<MmaType::kE4m3>(row_tile);
    case WeightType::kBf16:
      return Find<MmaType::kBf16>(row_tile);
    case WeightType::kInt8:
      return Find<MmaType::kInt8>(row_tile);
    case WeightType::kInt4:
    case WeightType::kInt4Fp8:
    case WeightType::kE2m1:
      return FindNarrowGemm(type, row_tile);
  }
  return nullptr;
}

}  // namespace switchyard::cuda
