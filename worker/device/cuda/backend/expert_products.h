// The device's part of a pass over experts: launches the steps of
// worker/device/cuda/steps/expert_facts.h over pairs that are grouped by expert already, by lists
// in device memory. How many pairs there are is a hint here; the lists say it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include <cuda_runtime_api.h>

#include "worker/device/cuda/backend/cuda_experts.h"
#include "worker/device/cuda/backend/cuda_workspace.h"
#include "worker/device/cuda/steps/answer_rows.h"
#include "worker/device/cuda/steps/expert_facts.h"

namespace switchyard {

// From so many pairs of an expert on, on average, the products of prefill are faster.
constexpr std::int32_t kPairsForPrefill = 32;

// The weights of all experts of a route, with the padded sizes of the shape.
cuda::PackedWeights WeightsOf(const CudaTable& table, const MoeShape& shape, cuda::Route route,
                              Matrix matrix);

// The lists of a pass, in device memory.
struct GroupedPairs {
  cuda::PairList list;
  const std::int32_t* counts = nullptr;   // [kRoutes][slots]: pairs of a slot, zero in other routes
  const std::int32_t* offsets = nullptr;  // [slots]: the first pair of a slot
};

// Lives on the stack of the caller; allocates nothing on the heap.
class ExpertProducts {
 public:
  // All outlive it.
  ExpertProducts(const CudaTable& table, CudaWorkspace& space, cudaStream_t stream,
                 CudaFault* fault)
      : table_(table), space_(space), stream_(stream), fault_(fault) {}

  // The pairs of one expert, on average; a busy one has as many as `busiest`.
  void Expect(cuda::Route route, std::int32_t pairs, std::int32_t busiest);
  // After what is expected; `amax`: the pass records magnitudes.
  void Choose(bool amax);
  // Everything from wire rows to FP32 sums of pairs. Errors: those of CudaFault.
  absl::Status Multiply(const GroupedPairs& pairs);
  // The sums in their form for the caller.
  absl::Status Answer(const cuda::PairList& list, bool weighted, bool fp32, std::uint8_t* nan);

 private:
  struct RouteUse {
    std::int32_t pairs = 0;
    std::int32_t experts = 0;   // with pairs
    std::int32_t busiest = 0;   // pairs of one expert
    bool prefill = false;       // goes through the products of prefill
    bool makes_hidden = false;  // whose first one makes h
  };

  absl::Status Multiply(Matrix matrix, const GroupedPairs& pairs);
  absl::Status MultiplyGrouped(Matrix matrix, cuda::Route route, const GroupedPairs& pairs);
  absl::Status MultiplyPrefill(Matrix matrix, cuda::Route route, const cuda::GemmGroups& groups,
                               const cuda::PackedWeights& weights);
  [[nodiscard]] cuda::PackedWeights Weights(cuda::Route route, Matrix matrix) const {
    return WeightsOf(table_, space_.shape_, route, matrix);
  }
  // Rows in front of a product, as the steps before it write them.
  [[nodiscard]] cuda::PairRows RowsOf(Matrix matrix) const;
  [[nodiscard]] RouteUse& UseOf(cuda::Route route) {
    return uses_[static_cast<std::size_t>(route)];
  }

  const CudaTable& table_;
  CudaWorkspace& space_;
  const cudaStream_t stream_;
  CudaFault* const fault_;
  std::array<RouteUse, cuda::kRoutes> uses_{};
};

}  // namespace switchyard
