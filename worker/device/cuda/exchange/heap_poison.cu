#include <algorithm>

#include "worker/device/cuda/exchange/exchange_launch.h"
#include "worker/device/cuda/exchange/exchange_memory.cuh"
#include "worker/device/cuda/exchange/heap_poison.h"

namespace switchyard::cuda {
namespace {

constexpr int kThreads = 512;
constexpr std::int64_t kCtasMax = 1024;

__global__ void __launch_bounds__(kThreads) PoisonKernel(uint4* units, std::int64_t count) {
  const std::int64_t apart = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += apart) {
    StorePoison(units + i);
  }
}

}  // namespace

cudaError_t PoisonHeap(std::byte* heap, std::int64_t bytes, cudaStream_t stream) {
  if (heap == nullptr || !IsAligned16(heap) || bytes <= 0 || bytes % 16 != 0) {
    return cudaErrorInvalidValue;
  }
  const std::int64_t units = bytes / 16;
  const std::int64_t ctas = std::min((units + kThreads - 1) / kThreads, kCtasMax);
  PoisonKernel<<<static_cast<unsigned>(ctas), kThreads, 0, stream>>>(reinterpret_cast<uint4*>(heap),
                                                                     units);
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
