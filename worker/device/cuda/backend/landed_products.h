// The experts of a step of many tokens, from the rows that a dispatch has landed to the answers
// that combine reads, without copies of rows and without sums in FP32: two products. It serves
// experts that read rows as they travel and whose sums nothing finishes; ExpertProducts serves all
// others, and gives these the same bits.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include <cuda_runtime_api.h>

#include "worker/device/cuda/backend/cuda_experts.h"
#include "worker/device/cuda/backend/cuda_workspace.h"
#include "worker/device/cuda/exchange/exchange_rank.h"

namespace switchyard {

// Lives on the stack of the caller; allocates nothing. What is between the products lies in the
// memory that `space` has for sums, which has room for more pairs than one pass of the others.
class LandedProducts {
 public:
  // All outlive it.
  LandedProducts(const CudaTable& table, CudaWorkspace& space, cudaStream_t stream,
                 CudaFault* fault)
      : table_(table), space_(space), stream_(stream), fault_(fault) {}

  // Whether it serves a step that has about `rows_of_expert` rows for each expert.
  [[nodiscard]] bool Serves(const cuda::ExchangeRank& rank, const cuda::ExchangeStep& step,
                            std::int64_t rows_of_expert) const;
  // After the step's dispatch. `answers`: BF16 [slot][hidden], for all slots of the step. Errors:
  // those of CudaFault.
  absl::Status Run(const cuda::ExchangeRank& rank, const cuda::ExchangeStep& step,
                   std::uint16_t* answers);

 private:
  [[nodiscard]] cuda::PackedWeights Weights(Matrix matrix) const;
  [[nodiscard]] bool is_fp8() const { return *table_.landed_route() == cuda::Route::kFp8; }
  [[nodiscard]] std::int64_t RowBytes() const;  // of a hidden row

  const CudaTable& table_;
  CudaWorkspace& space_;
  const cudaStream_t stream_;
  CudaFault* const fault_;
};

}  // namespace switchyard
