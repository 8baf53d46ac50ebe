// Kernels that stand in for the experts between dispatch and combine.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/exchange/low_latency.h"

namespace switchyard::cuda::testing {

// answers[slot] = bf16(decoded row of the slot * (1 + expert / 256)): easy to predict, and wrong
// for any other row or expert. `expert`: its number among all.
void FakeExperts(const ExchangeRank& rank, const ExchangeStep& step, std::uint16_t* answers,
                 bool dependent, cudaStream_t stream);
// Reads every landed row once.
void TouchRows(const ExchangeRank& rank, const ExchangeStep& step, std::uint32_t* sink,
               bool dependent, cudaStream_t stream);
// Waits until all `ranks` GPUs are here for the `turn`-th time, counted in `counters[r]` of each.
void DeviceBarrier(std::uint32_t* const* counters, int ranks, int rank, cudaStream_t stream);

}  // namespace switchyard::cuda::testing
