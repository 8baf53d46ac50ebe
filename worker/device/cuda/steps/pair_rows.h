// The steps before the two products of an expert: the rows that gate and up read, and h.
//
// Each function enqueues one kernel; it allocates nothing and may be captured.
// Thread-safe. Errors: cudaErrorInvalidValue for sizes below one; else what the launch returned.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/steps/expert_facts.h"

namespace switchyard::cuda {

// Decodes the row of each pair and rounds it as its expert asks, unless the wire has rounded it.
// Routes kFp8 and kInt8: codes of wire rows of that format are taken as they are; rows of every
// other format are encoded. Zeros fill each row to Padded(hidden) values.
cudaError_t LoadPairRows(const PairList& list, std::int64_t hidden, const PairRows& out,
                         cudaStream_t stream);

// Sums of gate and up at the places of pairs; up's begin at Padded(intermediate).
struct PairSums {
  const float* sums = nullptr;
  std::int64_t stride = 0;   // values
  std::uint32_t routes = 0;  // bit r: pairs of Route r are here; the others have their h already
};

// out = h of each pair: BF16(silu(gate) * up), rounded as its expert asks.
cudaError_t SwigluPairRows(const PairList& list, const PairSums& sums, std::int64_t intermediate,
                           const PairRows& out, cudaStream_t stream);

}  // namespace switchyard::cuda
