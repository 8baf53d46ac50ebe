// Sums of a unit that one CTA begins and the next one finishes (unit_pieces.cuh), in device memory.
//
// The reader waits without a deadline of its own: it waits only for the CTA before it, which began
// earlier and waits for nobody before it leaves these sums. A kernel that does not end all the same
// is the device's fault, after a minute (backend/cuda_stream.cc).
//
// Each multiplying warp hands its own sums to the same warp of the next CTA. The reader clears the
// flag, so the memory is ready for the next kernel of the stream.
//
// The memory: flags [kCarryCtasMax][multiplying warp], then sums [CTA][sum of a thread][thread].
#pragma once

#include <cstddef>
#include <cstdint>

#include "worker/device/cuda/ptx.cuh"

namespace switchyard::cuda {

constexpr int kCarryThreads = 256;  // that multiply
constexpr int kCarryWarps = kCarryThreads / 32;

constexpr int kCarryCtasMax = 1024;
// The same for any number of CTAs: flags of one kernel are never sums of another.
constexpr int kCarryFlagBytes = kCarryCtasMax * kCarryWarps * 4;

// SumCarry is that of a CTA with kSums 4-byte sums in each multiplying thread.
template <int kSums>
class SumCarry {
 public:
  __device__ __forceinline__ SumCarry(std::byte* memory, int cta)
      : flag_(reinterpret_cast<std::uint32_t*>(memory) + cta * kCarryWarps + threadIdx.x / 32),
        sums_(memory + kCarryFlagBytes +
              (static_cast<std::int64_t>(cta) * kSums * kCarryThreads + threadIdx.x) * 4) {}

  template <typename Sum>
  __device__ __forceinline__ void Leave(int index, Sum sum) {
    static_assert(sizeof(Sum) == 4);
    reinterpret_cast<Sum*>(sums_)[index * kCarryThreads] = sum;
  }
  // After all Leave of this thread; a whole warp calls it.
  __device__ __forceinline__ void Announce() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) AddRelease(flag_, 1);
  }

  // Waits until the sums are there; a whole warp calls it.
  __device__ __forceinline__ void Await() {
    if (threadIdx.x % 32 == 0) {
      while (LoadAcquire(flag_) == 0) {
      }
    }
    __syncwarp();
  }
  template <typename Sum>
  __device__ __forceinline__ Sum Take(int index) const {
    return __ldcg(reinterpret_cast<const Sum*>(sums_) + index * kCarryThreads);
  }
  // After all Take of this thread; a whole warp calls it.
  __device__ __forceinline__ void Clear() {
    __syncwarp();
    if (threadIdx.x % 32 == 0) StoreStrong(flag_, 0);
  }

 private:
  std::uint32_t* const flag_;
  std::byte* const sums_;
};

}  // namespace switchyard::cuda
