// The shared memory in which CTAs make the lists of a dispatch.
#pragma once

#include <cstdint>

#include "worker/device/cuda/exchange/exchange_shape.h"

namespace switchyard::cuda {

constexpr std::uint32_t kNoEntry = 0xffffffffU;

// Offsets [experts + 1] from counts [experts]. By the first warp.
__device__ __forceinline__ void AddUp(const std::int32_t* counts, std::int32_t* offsets,
                                      int experts) {
  const auto lane = static_cast<int>(threadIdx.x);
  int before = 0;
  for (int base = 0; base < experts; base += 32) {
    const int e = base + lane;
    int sum = e < experts ? counts[e] : 0;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
      const int below = __shfl_up_sync(0xffffffffU, sum, d);
      if (lane >= d) sum += below;
    }
    if (e < experts) offsets[e + 1] = before + sum;
    before += __shfl_sync(0xffffffffU, sum, 31);
  }
  if (lane == 0) offsets[0] = 0;
}

// In dynamic shared memory, for a step that covers `cover` tokens of a source.
struct ListMemory {
  static __host__ __device__ constexpr int Entries(const ExchangeShape& shape, int cover) {
    return shape.ranks * cover * ((shape.top_k + 1) / 2) * 2;
  }
  static __host__ __device__ constexpr int Bytes(const ExchangeShape& shape, int cover) {
    return (Entries(shape, cover) + 2 * shape.experts_of_rank + 1) * 4;
  }
  __device__ __forceinline__ ListMemory(void* memory, const ExchangeShape& shape, int cover)
      : entries(static_cast<std::uint32_t*>(memory)),
        counts(reinterpret_cast<std::int32_t*>(entries + Entries(shape, cover))),
        offsets(counts + shape.experts_of_rank) {}

  std::uint32_t* entries;  // of a choice: expert << 16 | position, or kNoEntry
  std::int32_t* counts;    // by expert
  std::int32_t* offsets;
};

}  // namespace switchyard::cuda
