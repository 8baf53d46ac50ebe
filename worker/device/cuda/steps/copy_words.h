// Small copies by a kernel: between two kernels of a stream a copy engine costs some ten
// microseconds, a kernel one or two.
//
// Enqueues one kernel; allocates nothing; may be captured. Thread-safe. Errors:
// cudaErrorInvalidValue for addresses or sizes that are no multiples of 16; else what the launch
// returned.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace switchyard::cuda {

// Each is device memory, or host memory that the device maps.
cudaError_t CopyWords(std::byte* to, const std::byte* from, std::size_t bytes, cudaStream_t stream);

}  // namespace switchyard::cuda
