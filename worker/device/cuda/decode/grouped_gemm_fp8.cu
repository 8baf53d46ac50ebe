#include "worker/device/cuda/decode/grouped_gemm.cuh"
#include "worker/device/cuda/decode/grouped_gemm_instances.h"

namespace switchyard::cuda {
namespace {

template <int kBlocks>
GemmLaunch Find(int row_tile) {
  switch (row_tile) {
    case 24:
      return LaunchGemm<24, MmaType::kE4m3, kBlocks, Epilogue::kPlain>;
    case 32:
      return LaunchGemm<32, MmaType::kE4m3, kBlocks, Epilogue::kPlain>;
    case 64:
      return LaunchGemm<64, MmaType::kE4m3, kBlocks, Epilogue::kPlain>;
    default:
      return nullptr;
  }
}

}  // namespace

GemmLaunch FindFp8Gemm(WeightOrder order, int row_tile) {
  return order == WeightOrder::kRows256 ? Find<2>(row_tile) : Find<1>(row_tile);
}

}  // namespace switchyard::cuda
