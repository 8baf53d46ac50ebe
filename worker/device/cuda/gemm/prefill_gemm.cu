#include "worker/device/cuda/gemm/prefill_gemm.h"

#include "worker/device/cuda/gemm/prefill_launch.cuh"

namespace switchyard::cuda {

cudaError_t LaunchPrefillFp8(const PrefillFp8& product, cudaStream_t stream) {
  return LaunchFp8As</*Cluster=*/2, /*Columns=*/256, /*Stages=*/4, /*Turns=*/false>(product, 8,
                                                                                  stream);
}

cudaError_t LaunchPrefillBf16(const PrefillBf16& product, cudaStream_t stream) {
  return LaunchBf16As</*Cluster=*/2, /*Stages=*/4>(product, 8, stream);
}

}  // namespace switchyard::cuda
