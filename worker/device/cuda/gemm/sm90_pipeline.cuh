// Hopper's asynchronous machinery in the few forms that the GEMM kernels use: mbarriers, bulk and
// tensor copies, clusters, stmatrix and the proxies between them.
//
// Every address of shared memory is the 32-bit address of the shared window (SharedAddress).
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_runtime.h>

namespace switchyard::cuda::sm90 {

__device__ __forceinline__ std::uint32_t SharedAddress(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// ---- mbarriers ----

__device__ __forceinline__ void BarrierInit(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialized barriers visible to the other blocks of the cluster and to the copy engine.
__device__ __forceinline__ void FenceBarrierInit() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void BarrierArrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives at the barrier of the same offset in block `rank` of the cluster.
__device__ __forceinline__ void BarrierArriveAt(std::uint32_t barrier, std::uint32_t rank) {
  asm volatile(
      "{.reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];}" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

// Arrives, and lets the phase end only after `bytes` more have been copied.
__device__ __forceinline__ void BarrierArriveExpect(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Returns once the phase of this parity has ended.
__device__ __forceinline__ void BarrierWait(std::uint32_t barrier, std::uint32_t parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "wait:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra ended;\n"
      "bra wait;\n"
      "ended:}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Whether the phase of this parity has ended; may take a moment to answer no.
__device__ __forceinline__ bool BarrierTry(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t done;
  asm volatile(
      "{.reg .pred p;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
      "selp.u32 %0, 1, 0, p;}"
      : "=r"(done)
      : "r"(barrier), "r"(parity)
      : "memory");
  return done != 0;
}

// ---- clusters ----

__device__ __forceinline__ std::uint32_t ClusterRank() {
  std::uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Stores a word at the offset of `to` in block `rank`, where it counts 4 bytes at the barrier of
// the offset of `barrier`.
__device__ __forceinline__ void StoreWordAt(std::uint32_t to, std::uint32_t value,
                                            std::uint32_t barrier, std::uint32_t rank) {
  asm volatile(
      "{.reg .b32 remote, remote_barrier;\n"
      "mapa.shared::cluster.u32 remote, %0, %3;\n"
      "mapa.shared::cluster.u32 remote_barrier, %2, %3;\n"
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [remote], %1,"
      " [remote_barrier];}" ::"r"(to),
      "r"(value), "r"(barrier), "r"(rank)
      : "memory");
}

// Every thread of every block of the cluster calls it.
__device__ __forceinline__ void ClusterSync() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// ---- dependent launch ----

// Waits for the kernel before this one in the stream, where that one lets this one start early.
__device__ __forceinline__ void WaitForPreviousKernel() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

// ---- copies into shared memory, whose bytes count at `barrier` ----

__device__ __forceinline__ void PrefetchTensorMap(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// `bytes`, `to` and `from` are multiples of 16.
__device__ __forceinline__ void CopyIn(std::uint32_t to, const void* from, std::uint32_t bytes,
                                       std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// To the same offset in every block of the cluster that `blocks` has a bit for, and counted at the
// barrier of the same offset there.
__device__ __forceinline__ void CopyInto(std::uint32_t to, const void* from, std::uint32_t bytes,
                                         std::uint32_t barrier, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
      " [%0], [%1], %2, [%3], %4;" ::"r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "h"(blocks)
      : "memory");
}

__device__ __forceinline__ void CopyBoxIn(std::uint32_t to, const CUtensorMap* map, int x, int y,
                                          std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void CopyBoxIn(std::uint32_t to, const CUtensorMap* map, int x, int y,
                                          int z, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
}

// To the same offset in every block of the cluster that `blocks` has a bit for, and counted at the
// barrier of the same offset there.
__device__ __forceinline__ void CopyBoxInto(std::uint32_t to, const CUtensorMap* map, int x, int y,
                                            int z, std::uint32_t barrier, std::uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(to),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier), "h"(blocks)
      : "memory");
}

// ---- copies of a thread into shared memory, by groups ----

__device__ __forceinline__ void Gather16(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from)
               : "memory");
}

__device__ __forceinline__ void Gather4(std::uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

__device__ __forceinline__ void CommitGathered() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Returns once at most `Pending` of the thread's groups are unfinished.
template <int Pending>
__device__ __forceinline__ void WaitGathered() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}

// Between a thread's accesses to shared memory and those of the copy engine or the tensor cores.
__device__ __forceinline__ void FenceSharedToAsync() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- registers to shared memory ----

// Four 8x8 matrices of 16-bit values; lane l gives the address of row l % 8 of matrix l / 8.
__device__ __forceinline__ void StoreMatrices(std::uint32_t row, std::uint32_t m0, std::uint32_t m1,
                                              std::uint32_t m2, std::uint32_t m3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row),
               "r"(m0), "r"(m1), "r"(m2), "r"(m3)
               : "memory");
}

}  // namespace switchyard::cuda::sm90
