#include "worker/device/cuda/steps/copy_words.h"

namespace switchyard::cuda {
namespace {

constexpr unsigned kThreads = 128;

__global__ void __launch_bounds__(kThreads) Copy(uint4* to, const uint4* from, std::size_t words) {
  const std::size_t i = blockIdx.x * std::size_t{kThreads} + threadIdx.x;
  if (i < words) to[i] = from[i];
}

bool IsMultipleOf16(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;
}

}  // namespace

cudaError_t CopyWords(std::byte* to, const std::byte* from, std::size_t bytes,
                      cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!IsMultipleOf16(to) || !IsMultipleOf16(from) || bytes % 16 != 0 || bytes >> 31 != 0) {
    return cudaErrorInvalidValue;
  }
  const std::size_t words = bytes / 16;
  const auto grid = static_cast<unsigned>((words + kThreads - 1) / kThreads);
  Copy<<<grid, kThreads, 0, stream>>>(reinterpret_cast<uint4*>(to),
                                      reinterpret_cast<const uint4*>(from), words);
  return cudaGetLastError();
}

}  // namespace switchyard::cuda
