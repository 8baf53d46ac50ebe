// The last step of a run, and sums of rows: fixed order, FP32, rounded once.
//
// Each function enqueues one kernel, a CTA for each row; it allocates nothing and may be captured.
// Thread-safe. Errors: cudaErrorInvalidValue for sizes below one; else what the launch returned.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/steps/expert_facts.h"

namespace switchyard::cuda {

struct Answers {
  const float* sums = nullptr;  // at the places of pairs
  std::int64_t sum_stride = 0;
  std::int64_t hidden = 0;
  bool weighted = false;  // sums of weight * row, fused multiply-adds from zero; else one term
  bool fp32 = false;      // answers before rounding
  // [rows], set to whether the first value of the answer is NaN; host memory that the device maps.
  // Null: nobody reads it.
  std::uint8_t* nan = nullptr;
};
cudaError_t WriteAnswers(const Answers& answers, const PairList& list, cudaStream_t stream);

// y[i] of SumRun (worker/device/stream.h). terms, weights and begin: device memory, or host memory
// that the device maps. weights may be null.
struct RowSums {
  const std::uint16_t* const* terms = nullptr;
  const float* weights = nullptr;
  const std::uint32_t* begin = nullptr;
  std::int64_t rows = 0;
  std::int64_t hidden = 0;
  std::byte* y = nullptr;
  std::int64_t y_stride = 0;  // values
  bool fp32 = true;
};
cudaError_t SumRows(const RowSums& sums, cudaStream_t stream);

}  // namespace switchyard::cuda
