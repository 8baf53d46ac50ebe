#include "worker/device/cuda/decode/grouped_gemm.cuh"
#include "worker/device/cuda/decode/grouped_gemm_instances.h"

namespace switchyard::cuda {

GemmLaunch FindFp8SwigluGemm(int row_tile) {
  switch (row_tile) {
    case 24:
      return LaunchGemm<24, MmaType::kE4m3, 2, Epilogue::kSwiglu>;
    case 32:
      return LaunchGemm<32, MmaType::kE4m3, 2, Epilogue::kSwiglu>;
    case 64:  // 64 rows would not fit into the registers of both sums.
      return LaunchGemm<48, MmaType::kE4m3, 2, Epilogue::kSwiglu>;
    default:
      return nullptr;
  }
}

}  // namespace switchyard::cuda
