// FP32 output, for the steps between the products of an expert (steps/).
#include "worker/device/cuda/grouped_gemm.cuh"
#include "worker/device/cuda/grouped_gemm_instances.h"

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
  return type == WeightType::kFp8 ? Find<MmaType::kE4m3>(row_tile) : Find<MmaType::kBf16>(row_tile);
}

}  // namespace switchyard::cuda
