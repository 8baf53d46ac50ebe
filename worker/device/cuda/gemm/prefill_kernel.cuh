// The grouped product of prefill on Hopper: one persistent block of three warpgroups on each SM.
//
//   warpgroup 2, warp 0         takes tiles, copies operands and scales into a ring of stages
//   warpgroup 2, warps 1 to 3   gather rows of A, where these do not stand together
//   warpgroups 0 and 1          64 rows of the tile each: products, scaling, rounding, store
//
// A stage holds 128 bytes of K: 128 rows of A, 2 x 128 rows of B, the 128 scales of A and the two
// of B. What a stage is for (which tile, or the end) travels in it, so consumers take nothing.
//
// Blocks come in clusters of two that read the same weights: each copies one box of B to both.
// Clusters take units of work from a counter in device memory: SMs differ in speed by a few
// percent.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "worker/device/cuda/gemm/prefill_consumers.cuh"
#include "worker/device/cuda/gemm/prefill_gather.cuh"
#include "worker/device/cuda/gemm/prefill_producer.cuh"
#include "worker/device/cuda/gemm/prefill_shared.cuh"
#include "worker/device/cuda/gemm/sm90_pipeline.cuh"
#include "worker/device/cuda/gemm/sm90_wgmma.cuh"
#include "worker/device/cuda/warp_arrivals.h"

namespace switchyard::cuda {

template <bool Gather, int Cluster, int Stages>
__device__ void StartPipeline(PrefillShared<Stages>* shared) {
  if (threadIdx.x == 0) {
    if (sm90::SharedAddress(shared) % 1024 != 0) __trap();
    for (int i = 0; i < Stages; ++i) {
      sm90::BarrierInit(sm90::SharedAddress(&shared->full[i]),
                        Gather ? 1 + kGatherWarps * kArrivalsOfWarp : 1);
      sm90::BarrierInit(sm90::SharedAddress(&shared->empty[i]),
                        kConsumerWarps * Cluster * kArrivalsOfWarp);
    }
    for (int i = 0; i < kUnitSlots; ++i) {
      sm90::BarrierInit(sm90::SharedAddress(&shared->unit_full[i]), 1);
      sm90::BarrierInit(sm90::SharedAddress(&shared->gather_full[i]), 1);
    }
    sm90::FenceBarrierInit();
  }
  if (Cluster > 1) {
    sm90::ClusterSync();
  } else {
    __syncthreads();
  }
}

template <PrefillKind Kind, bool Gather, int Cluster, int Stages>
__global__ void __launch_bounds__(kPrefillThreads, 1)
    PrefillKernel(const __grid_constant__ PrefillArgs args, const __grid_constant__ CUtensorMap a,
                  const __grid_constant__ CUtensorMap b0, const __grid_constant__ CUtensorMap b1) {
  extern __shared__ __align__(1024) std::uint8_t memory[];
  auto* shared = reinterpret_cast<PrefillShared<Stages>*>(memory);
  StartPipeline<Gather, Cluster>(shared);
  sm90::WaitForPreviousKernel();
  if (threadIdx.x < 32 * kConsumerWarps) {
    sm90::RaiseRegisters<224>();
    if constexpr (IsFp8(Kind)) {
      ConsumeFp8<Kind, Cluster, Stages>(args, shared);
    } else {
      ConsumeWhole<Kind, Cluster, Stages>(args, shared);
    }
  } else {
    sm90::LowerRegisters<56>();
    const int warp = static_cast<int>(threadIdx.x / 32) - kConsumerWarps;
    if (warp == 0) {
      Produce<Kind, Gather, Cluster>(args, {.a = &a, .b = {&b0, &b1}}, shared);
    } else if constexpr (Gather) {
      Gatherer<IsFp8(Kind), Stages>(args, args.gathered, warp - 1, shared).Run();
    }
  }
  // Neither block leaves while the other one still arrives at its barriers.
  __syncwarp();
  if (Cluster > 1) sm90::ClusterSync();
}

}  // namespace switchyard::cuda
