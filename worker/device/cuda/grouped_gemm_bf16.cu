#include "worker/device/cuda/grouped_gemm.cuh"
#include "worker/device/cuda/grouped_gemm_instances.h"

namespace switchyard::cuda {
namespace {

template <int kBlocks, int kPerSm>
GemmLaunch Find(int row_tile) {
  switch (row_tile) {
    case 24:
      return LaunchGemm<24, MmaType::kBf16, kBlocks, Epilogue::kPlain, kPerSm>;
    case 32:
      return LaunchGemm<32, MmaType::kBf16, kBlocks, Epilogue::kPlain, kPerSm>;
    case 64:
      return LaunchGemm<64, MmaType::kBf16, kBlocks, Epilogue::kPlain, 1>;
    default:
      return nullptr;
  }
}

}  // namespace

GemmLaunch FindBf16Gemm(WeightOrder order, int row_tile, bool share_sm) {
  if (order == WeightOrder::kRows256) return Find<2, 1>(row_tile);
  return share_sm ? Find<1, 2>(row_tile) : Find<1, 1>(row_tile);
}

}  // namespace switchyard::cuda
