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

#include "worker/device/cuda/backend/cuda_experts.h"
#include "worker/device/cuda/backend/cuda_memory.h"
#include "worker/device/cuda/backend/upload_buffer.h"
#include "worker/device/cuda/steps/weight_codes.h"

namespace switchyard {

// Uses the current device. One thread at a time.
class ExpertPacker {
 public:
  // `fault` outlives it. `portable`: for the products that run on every GPU.
  explicit ExpertPacker(CudaFault* fault, bool portable = false)
      : fault_(fault), portable_(portable), upload_(fault) {}
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

  absl::Status Reserve(const MoeShape& shape);
  absl::StatusOr<Choice> Upload(const MoeShape& shape, const ExpertWeightsView& view);
  absl::Status Store(const MoeShape& shape, const Choice& choice, const cuda::ExpertFacts& facts);
  absl::Status StoreMatrix(const cuda::CodedMatrix& matrix, const Choice& choice);
  // Gate and up, or down, in blocks of narrow_weights.h, which hold their scales along k.
  absl::Status StoreNarrow(const MoeShape& shape, const Choice& choice,
                           const cuda::ExpertFacts& facts);
  [[nodiscard]] const std::uint16_t* Uploaded(std::int64_t index) const {
    return reinterpret_cast<const std::uint16_t*>(scratch_.data() + index * part_bytes_);
  }

  CudaFault* const fault_;
  const bool portable_;
  cudaStream_t stream_ = nullptr;
  UploadBuffer upload_;
  // Gate, up and down as they came, then one matrix in its code, then the misfits of all.
  CudaMemory scratch_;
  std::int64_t part_bytes_ = 0;
};

}  // namespace switchyard
