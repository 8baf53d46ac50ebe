// The Hopper instructions that the kernels use and CUDA C++ has no functions for: barriers in
// shared memory, bulk and asynchronous copies, dependent launch, cache hints. One instruction each.
//
// Shared memory is addressed by 32-bit addresses of the shared window (SharedAddress).
#pragma once

#include <cstdint>

namespace switchyard::cuda {

__device__ __forceinline__ std::uint32_t SharedAddress(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- mbarriers -------------------------------------------------------------------------------

__device__ __forceinline__ void InitBarrier(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// Makes initialized barriers visible to bulk copies; a CTA barrier still has to follow.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void Arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Arrives and announces `bytes` of bulk copies, which the phase then waits for.
__device__ __forceinline__ void ArriveExpecting(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
// Waits until the phase of this parity is complete.
__device__ __forceinline__ void WaitBarrier(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done = 0;
  do {
    asm volatile(
        "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, "
        "p;}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (done == 0);
}
__device__ __forceinline__ void SyncNamed(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives without waiting; `threads` counts those that wait as well.
__device__ __forceinline__ void ArriveNamed(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// ---- copies into shared memory ---------------------------------------------------------------

__device__ __forceinline__ std::uint64_t EvictFirst() {
  std::uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
// `bytes` and both addresses are multiples of 16; completes on `barrier`.
__device__ __forceinline__ void BulkCopy(std::uint32_t to, const void* from, std::uint32_t bytes,
                                         std::uint32_t barrier, std::uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], "
      "[%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}
__device__ __forceinline__ void CopyAsync16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void CopyAsync8(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void CopyAsync4(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void CommitCopies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most `kPending` committed groups of this thread are under way.
template <int kPending>
__device__ __forceinline__ void WaitCopies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// Orders this thread's writes to shared memory before reads by the tensor cores, which go through
// another proxy. The barrier that tells the readers comes after it.
__device__ __forceinline__ void FenceForTensorCores() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- shared memory ---------------------------------------------------------------------------

__device__ __forceinline__ void StoreShared8(std::uint32_t at, std::uint32_t value) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void StoreShared16(std::uint32_t at, std::uint16_t value) {
  asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(value) : "memory");
}
__device__ __forceinline__ void StoreShared32(std::uint32_t at, std::uint32_t value) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void MaxShared(std::uint32_t at, std::uint32_t value) {
  asm volatile("red.shared.max.u32 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}
__device__ __forceinline__ float LoadSharedFloat(std::uint32_t at) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(at) : "memory");
  return value;
}
__device__ __forceinline__ float2 LoadSharedFloat2(std::uint32_t at) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(at)
               : "memory");
  return value;
}
__device__ __forceinline__ float4 LoadSharedFloat4(std::uint32_t at) {
  float4 value;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(at)
               : "memory");
  return value;
}
__device__ __forceinline__ uint4 LoadShared128(std::uint32_t at) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(at)
               : "memory");
  return value;
}

// ---- between kernels and between CTAs ----------------------------------------------------------

// Returns once the kernels that this one depends on are complete and their writes visible. Returns
// at once in a kernel that was launched without programmatic stream serialization.
__device__ __forceinline__ void WaitForPrecedingKernels() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
// Lets the next kernel of the stream start; it still waits for this one before it reads its output.
__device__ __forceinline__ void AllowDependentLaunch() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ __forceinline__ std::uint32_t LoadAcquire(const std::uint32_t* at) {
  std::uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
// The compiler keeps it, and its place among accesses like it.
__device__ __forceinline__ void StoreStrong(std::uint32_t* at, std::uint32_t value) {
  asm volatile("st.volatile.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void AddRelease(std::uint32_t* at, std::uint32_t value) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void AddRelease64(std::uint64_t* at, std::uint64_t value) {
  asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
__device__ __forceinline__ std::uint64_t GlobalNanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

// A value that all lanes of a warp have, in a register of the warp: what comes from threadIdx or
// shared memory has one in each lane, and is moved before each instruction that needs the other.
__device__ __forceinline__ std::uint32_t UniformOf(std::uint32_t value) {
  return __reduce_max_sync(~0U, value);
}

// ---- numbers -----------------------------------------------------------------------------------

// Two E4M3 codes, that of `low` in the low byte; to nearest even, saturating, NaN stays NaN.
__device__ __forceinline__ std::uint16_t E4m3Pair(float low, float high) {
  std::uint16_t codes;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %2, %1;" : "=h"(codes) : "f"(low), "f"(high));
  return codes;
}

}  // namespace switchyard::cuda
