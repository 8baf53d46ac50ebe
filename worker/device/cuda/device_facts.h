// Facts of the current CUDA device. Thread-safe.
#pragma once

#include <cuda_runtime_api.h>

namespace switchyard::cuda {

// Errors: what the runtime returned.
inline cudaError_t MultiprocessorsOfCurrentDevice(int* count) {
  int device = 0;
  const cudaError_t found = cudaGetDevice(&device);
  if (found != cudaSuccess) return found;
  return cudaDeviceGetAttribute(count, cudaDevAttrMultiProcessorCount, device);
}

}  // namespace switchyard::cuda
