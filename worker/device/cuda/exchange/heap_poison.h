// Fills a heap before the first step of a group.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace switchyard::cuda {

// `bytes`, a multiple of 16, become kExchangePoison. Enqueues one kernel. Errors:
// cudaErrorInvalidValue; what the launch returned.
cudaError_t PoisonHeap(std::byte* heap, std::int64_t bytes, cudaStream_t stream);

}  // namespace switchyard::cuda
