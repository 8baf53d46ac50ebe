// Scales and biases of one expert in the form that kernels read: padded to whole panels and 64-byte
// aligned, so that kernels load them without masks.
#pragma once

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"

#include "worker/device/cpu/kernel/kernel_family.h"
#include "worker/device/device_backend.h"
#include "worker/device/host/aligned_buffer.h"

namespace switchyard {

// Owns copies; move-only. Empty, and no bytes, for weights that have none of them.
class ExpertFactors {
 public:
  // `weights` fit `dims` (CheckWeights). Errors: kResourceExhausted (OUT_OF_MEMORY).
  static absl::StatusOr<ExpertFactors> Pack(const KernelDims& dims,
                                            const ExpertWeightsView& weights);

  ExpertFactors() = default;

  // nullptr: sums are used as they are. Valid until this is moved or destroyed.
  [[nodiscard]] const KernelAffine* affine() const { return affine_ ? &*affine_ : nullptr; }
  // All null for weights without scales along k. Valid as affine() is.
  [[nodiscard]] const KernelBlockScales& blocks() const { return blocks_; }
  // Counted with the packed weights.
  [[nodiscard]] std::int64_t bytes() const { return memory_.bytes(); }

 private:
  AlignedBuffer memory_;
  std::optional<KernelAffine> affine_;
  KernelBlockScales blocks_;
};

}  // namespace switchyard
