// Scratch of the runs of one CUDA stream: rows and sums on the device, lists on the host.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "worker/device/cuda/backend/cuda_memory.h"
#include "worker/device/cuda/decode/grouped_gemm.h"
#include "worker/device/cuda/steps/answer_rows.h"
#include "worker/device/cuda/steps/expert_facts.h"
#include "worker/device/device_backend.h"

namespace switchyard {

// Where the lists of one pass lie, counted from their start. They are written to pinned memory and
// copied to the device in one piece.
struct PassLists {
  PassLists(std::size_t terms, std::size_t rows, std::size_t slots);

  std::size_t rows = 0;     // [rows] PassRow
  std::size_t terms = 0;    // [rows][width] PairTerm
  std::size_t offsets = 0;  // [slots] int32: the first pair of a slot
  std::size_t counts = 0;   // [kRoutes][slots] int32: pairs of a slot, zero in other routes
  std::size_t bytes = 0;
};

class CudaWorkspace final : public Workspace {
 public:
  // Its memory is of the current device. Errors: kInvalidArgument (BAD_SHAPE, BAD_CONFIG) as the
  // seam; those of memory.
  static absl::StatusOr<std::unique_ptr<CudaWorkspace>> Create(const MoeShape& shape,
                                                               std::int64_t pairs_max,
                                                               CudaFault& fault);

  // Device memory of each pair, without the lists.
  static std::int64_t PairBytes(const MoeShape& shape);

  [[nodiscard]] const MoeShape& shape() const { return shape_; }
  [[nodiscard]] std::size_t pairs_max() const { return pairs_max_; }
  // Slots of the rows of a pass, those without an expert included.
  [[nodiscard]] std::size_t terms_max() const { return 2 * pairs_max_; }
  [[nodiscard]] std::size_t slots_max() const { return slots_max_; }

 private:
  friend class ExpertPasses;
  friend class ExpertProducts;
  friend class LandedProducts;
  CudaWorkspace(const MoeShape& shape, std::int64_t pairs_max);

  const MoeShape shape_;
  const std::size_t pairs_max_;
  const std::size_t slots_max_;

  CudaMemory memory_;
  cuda::PairRows inputs_;     // [pairs_max]
  cuda::PairRows middle_;     // [pairs_max]
  float* gate_up_ = nullptr;  // [pairs_max, 2 * padded intermediate]
  float* down_ = nullptr;     // [pairs_max, padded hidden]
  std::byte* lists_ = nullptr;
  float* amax_ = nullptr;           // [slots_max, 2]
  float* input_scales_ = nullptr;   // [padded hidden / 128, scale_stride_]
  float* middle_scales_ = nullptr;  // [padded intermediate / 128, scale_stride_]
  std::int64_t scale_stride_ = 0;
  std::uint32_t* units_taken_ = nullptr;  // PrefillScratch
  cuda::GemmCarry carry_;

  // These lists belong to the pass that is being made.
  std::vector<cuda::PassRow> rows_;       // [pairs_max]
  std::vector<std::int32_t> slot_begin_;  // [slots_max + 1]
};

}  // namespace switchyard
