// The product for weights that grouped_gemm.h has no kernel for: narrow codes times BF16 rows, and
// scales of groups or blocks with BF16 rows.
//
//   out[p][n] = sum over blocks b of 128 k: scale[n][b] * (sum of row[p][k] * weight[n][k])
//
// Products of BF16 values, sums in FP32. Row-major weights, decoded on their way into shared
// memory. A row's sums do not depend on the rows beside it.
//
// Enqueues one kernel; allocates nothing; may be captured. Thread-safe. Errors:
// cudaErrorInvalidValue for sizes that are no multiples of kPad; else what the launch returned.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "worker/device/cuda/steps/expert_facts.h"

namespace switchyard::cuda {

struct ScaledProduct {
  Route route = Route::kScaledBf16;  // experts of other routes are passed over
  const ExpertFacts* experts = nullptr;
  bool down = false;                      // the matrix: gate and up, or down
  const std::int32_t* counts = nullptr;   // [slots] pairs of an expert
  const std::int32_t* offsets = nullptr;  // [slots] its first pair
  std::int32_t slots = 0;
  const std::byte* rows = nullptr;  // BF16, by pair, 16-byte aligned
  std::int64_t row_stride = 0;      // bytes, a multiple of 16
  float* out = nullptr;             // by pair
  std::int64_t out_stride = 0;      // values
  std::int64_t n = 0;
  std::int64_t k = 0;
};
cudaError_t MultiplyScaled(const ScaledProduct& product, cudaStream_t stream);

}  // namespace switchyard::cuda
