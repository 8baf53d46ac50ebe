// The rows that a dispatch has landed, as pairs of a pass over experts (steps/expert_facts.h): a
// pair for each slot, read where it landed, its answer where combine reads it.
//
// Enqueues one kernel; allocates nothing; may be captured. Thread-safe. Errors:
// cudaErrorInvalidValue for a step that is none; else what the launch returned.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/exchange/exchange_rank.h"
#include "worker/device/cuda/steps/expert_facts.h"

namespace switchyard::cuda {

// The slots of one pass.
struct PairWindow {
  int first = 0;
  int count = 0;
};

// In memory of the rank's device. Rows and terms of a window's slots; those that the step has not
// are rows without an answer and without a place.
struct LandedPairs {
  PassRow* rows = nullptr;
  PairTerm* terms = nullptr;
  // [kRoutes][experts_of_rank], as the products of routes take them
  std::int32_t* counts = nullptr;
  std::int32_t* offsets = nullptr;  // [experts_of_rank], in the window
};

// Pairs of a step that covers so many tokens.
constexpr int LandedPairsMax(const ExchangeShape& shape, int cover) {
  const int of_token = shape.top_k < shape.experts_of_rank ? shape.top_k : shape.experts_of_rank;
  return shape.ranks * cover * of_token;
}

// After the step's dispatch. `experts`: facts by slot, of experts_of_rank. `answers`: as
// CombineLowLatency takes them.
cudaError_t ListLandedPairs(const ExchangeRank& rank, const ExchangeStep& step,
                            const PairWindow& window, const ExpertFacts* experts,
                            std::uint16_t* answers, const LandedPairs& out, cudaStream_t stream);

}  // namespace switchyard::cuda
