// Dispatch and combine of a step with many tokens of each rank, as low_latency.h does them for few:
// the same arguments, lists, numbers and faults, for shapes that IsNormal says. A rank calls them
// in turn, and rows of a step may be overwritten once its combine has sent its last answers.
//
// Rows and answers do not say by themselves that they have landed: a rank that has sent all of its
// rows, and its answers to a chunk of the tokens of the others, says so by a word in the header
// that they keep for it. So nothing is put back after a step, and one buffer of everything is
// enough: a rank writes into the rows of another only after that one's answers to the step before
// have come, and into its answers only after its rows of this step have. Every rank waits for every
// other in both kernels, also for one without tokens.
//
// The lists are made by kListCtas CTAs from the tables, which travel first, while the others send
// rows. All CTAs of the combine run at once, two on each of ExchangeRank::sms, because some wait
// for what others of other ranks send.
//
// The functions check arguments, enqueue one kernel and return. Errors: cudaErrorInvalidValue.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/exchange/exchange_rank.h"

namespace switchyard::cuda {

cudaError_t DispatchNormal(const ExchangeRank& rank, const ExchangeStep& step, cudaStream_t stream);

// `answers`, `out`: as CombineLowLatency takes them.
cudaError_t CombineNormal(const ExchangeRank& rank, const ExchangeStep& step,
                          const std::uint16_t* answers, std::uint16_t* out, cudaStream_t stream);
cudaError_t CombineNormal(const ExchangeRank& rank, const ExchangeStep& step,
                          const std::uint16_t* answers, float* out, cudaStream_t stream);

}  // namespace switchyard::cuda
