// Enqueues one ExpertRun: groups its (row, expert) pairs by expert, for the products of
// expert_products.h.
//
// A run whose pairs do not fit the workspace goes in several passes of whole rows. The answer to a
// row depends on the row and the weights only, so any cut gives the same bits; so does the choice
// between the products of decode and of prefill (gemm/prefill_packed.h), by rows of an expert.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include <cuda_runtime_api.h>

#include "worker/device/cuda/backend/cuda_experts.h"
#include "worker/device/cuda/backend/cuda_workspace.h"
#include "worker/device/cuda/backend/expert_products.h"
#include "worker/device/cuda/backend/staging_ring.h"
#include "worker/device/stream.h"

namespace switchyard {

// The host reads these when a run is complete. All memory is pinned.
struct RunResults {
  const std::uint8_t* nan = nullptr;  // [rows of the run], by input and row
  const float* amax = nullptr;        // [slots, 2]; null: not recorded
};

// One run. Lives on the stack of the caller; allocates nothing on the heap.
class ExpertPasses {
 public:
  ExpertPasses(const ExpertRun& run, StagingRing* ring, cudaStream_t stream, CudaFault* fault);

  // Errors: kResourceExhausted (NO_CREDITS) when the ring has no room now, kInvalidArgument
  // (BAD_SHAPE) when it never has; nothing is enqueued then. Others: those of CudaFault.
  absl::Status Enqueue(RunResults* results);

 private:
  // The next row to take: of which input, and which of its rows.
  struct Cursor {
    std::size_t input = 0;
    std::uint32_t row = 0;
  };

  [[nodiscard]] absl::Status CheckRoom() const;
  Cursor Gather(Cursor from);
  bool GatherRow(const ExpertInput& input, std::uint32_t row);
  absl::Status EnqueuePass(Cursor from, std::uint8_t* nan);
  // Fill the lists of the pass, pairs grouped by slot.
  void FillSlots(std::byte* at, const PassLists& lists, ExpertProducts* products);
  void FillTerms(Cursor from, cuda::PairTerm* terms);

  const ExpertRun& run_;
  StagingRing* const ring_;
  const cudaStream_t stream_;
  CudaFault* const fault_;
  const CudaTable& table_;
  CudaWorkspace& space_;
  const std::int64_t hidden_;
  const std::size_t slots_;
  // The pass that is being gathered has these.
  std::size_t pairs_ = 0;
  std::size_t rows_ = 0;
};

}  // namespace switchyard
