// Dispatch and combine of one step of a group of ranks, for few tokens: every rank sends its tokens
// to the ranks that have their experts, and gets back the weighted sums. No kernel of others runs
// between, no host takes part, and both may be captured into a graph.
//
//   rank r:  DispatchLowLatency -> experts, by ExchangeRows -> CombineLowLatency
//
// Dispatch encodes rows on their way, and leaves what the grouped products take (grouped_gemm.h,
// layout `index`): counts and offsets of experts, and the row of each slot. Combine adds a token's
// answers with their weights, k ascending, by fused multiply-adds in FP32 from zero, rounded to
// BF16 once: with kPerExpert at the source; with kPerWorker at each rank for its own experts, and
// the source adds those sums in ascending order of ranks in FP32 and rounds once more. Answers do
// not depend on which slot an expert's row got.
//
// Arrival: a receiver polls the row itself, which is written by 16-byte stores of system scope.
// PTX makes those single-copy atomic, so a unit whose first word is not poison is there as a whole.
// exchange_memory.cuh says why no format's rows hold that word.
//
// Ranks call both in the same order for the same steps, also with no tokens. A rank may be one step
// ahead of another. The rows of a step stay until this rank's next dispatch begins. Each waits at
// most `timeout_ns` for another rank; then that rank counts as lost, later kernels skip it at once,
// and ExchangeState says so: whatever such a step has written is no result. The same holds for a
// peer whose step is of another shape or covers fewer tokens.
//
// Memory: the heap of a rank is poisoned (heap_poison.h) and its state zeros before the first step
// of a group, which makes kExchangeStepsMax at most. The functions check arguments, enqueue one
// kernel and return. Errors: cudaErrorInvalidValue.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/exchange/exchange_rank.h"

namespace switchyard::cuda {

cudaError_t DispatchLowLatency(const ExchangeRank& rank, const ExchangeStep& step, bool dependent,
                               cudaStream_t stream);

// `answers`: BF16, slot s at answers + s * hidden. `out`: BF16 [tokens][hidden], 16-byte aligned; a
// token without experts gets zeros.
cudaError_t CombineLowLatency(const ExchangeRank& rank, const ExchangeStep& step,
                              const std::uint16_t* answers, std::uint16_t* out, bool dependent,
                              cudaStream_t stream);
// The same with `out` in FP32: the sums before they are rounded.
cudaError_t CombineLowLatency(const ExchangeRank& rank, const ExchangeStep& step,
                              const std::uint16_t* answers, float* out, bool dependent,
                              cudaStream_t stream);

}  // namespace switchyard::cuda
