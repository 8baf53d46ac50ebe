// Brings an expert's weights into the memory of a CUDA device, in the narrowest code that holds
// each of them exactly.
//
// The seam hands weights over as BF16 values with their scales apart, and the values of quant
// schemes are codes (core/format/weight_scales.h): E4M3 holds those of FP8, NVFP4 and INT4, INT8
// its own. The device tries both codes on all values; what fits neither stays BF16.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include <cuda_runtime_api.h>

#include "core/base/mutex.h"
#include "worker/device/cuda/backend/cuda_experts.h"
#include "worker/device/cuda/backend/cuda_memory.h"
#include "worker/device/cuda/steps/weight_codes.h"

namespace switchyard {

// Uses the current device. Thread-safe; one Pack at a time.
class ExpertPacker {
 public:
  explicit ExpertPacker(CudaFault* fault) : fault_(fault) {}
  // Waits for what runs.
  ~ExpertPacker();
  ExpertPacker(const ExpertPacker&) = delete;
  ExpertPacker& operator=(const ExpertPacker&) = delete;

  // `view` fits `shape` (CheckWeights). Waits for the device; for staging threads. Errors: those of
  // memory.
  absl::StatusOr<std::unique_ptr<PackedExpert>> Pack(const MoeShape& shape,
                                                     const ExpertWeightsView& view);

 private:
  // Pack decides this about an expert.
  struct Choice {
    cuda::Route route = cuda::Route::kBf16;
    cuda::WeightCode code = cuda::WeightCode::kBf16;  // unless the route has narrow weights
  };

  absl::Status Reserve(const MoeShape& shape) SY_REQUIRES(mutex_);
  absl::StatusOr<Choice> Upload(const MoeShape& shape, const ExpertWeightsView& view)
      SY_REQUIRES(mutex_);
  absl::Status Store(const MoeShape& shape, const Choice& choice, const cuda::ExpertFacts& facts)
      SY_REQUIRES(mutex_);
  absl::Status StoreMatrix(const cuda::CodedMatrix& matrix, const Choice& choice)
      SY_REQUIRES(mutex_);
  // Gate and up, or down, in blocks of narrow_weights.h, which hold their scales along k.
  absl::Status StoreNarrow(const MoeShape& shape, const Choice& choice,
                           const cuda::ExpertFacts& facts) SY_REQUIRES(mutex_);
  [[nodiscard]] const std::uint16_t* Uploaded(std::int64_t index) const SY_REQUIRES(mutex_) {
    return reinterpret_cast<const std::uint16_t*>(scratch_.data() + index * part_bytes_);
  }

  CudaFault* const fault_;
  Mutex mutex_;
  cudaStream_t stream_ = nullptr;
  // Gate, up and down as they came, then one matrix in its code, then the misfits of all.
  CudaMemory scratch_ SY_GUARDED_BY(mutex_);
  std::int64_t part_bytes_ SY_GUARDED_BY(mutex_) = 0;
};

}  // namespace switchyard
