// The kernels that a device that computes in host memory brings. Everything around them (decoding,
// grouping rows by expert, sums, streams, events) is the same for all of them and lives in this
// folder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"

#include "core/format/bf16.h"
#include "core/moe_shape.h"
#include "worker/device/device_backend.h"
#include "worker/device/host/row_ops.h"

namespace switchyard {

// Rows for one expert. y[i] = down(silu(gate(x_i)) * up(x_i)), not weighted, where x_i and the
// product in the middle are rounded as the expert's weights require.
// rows: BF16 [hidden] each, any alignment. out: FP32 [rows, hidden], row i after row i - 1.
struct ExpertRows {
  const PackedExpert* expert = nullptr;
  std::span<const Bf16* const> rows;
  float* out = nullptr;
  ExpertAmax* amax = nullptr;  // raised by what these rows have; null: not recorded
  // [rows], not 0 where a quantized wire format has rounded the row: the expert reads it as it is,
  // because a second rounding would only add its error. Null: none has.
  const std::uint8_t* rounded = nullptr;
};

// Memory of a RunExperts call, sized once for one shape.
class KernelScratch {
 public:
  virtual ~KernelScratch() = default;
};

class HostKernels {
 public:
  virtual ~HostKernels() = default;
  // Errors: kInvalidArgument (BAD_SHAPE); kResourceExhausted (OUT_OF_MEMORY).
  virtual absl::StatusOr<std::unique_ptr<KernelScratch>> MakeScratch(const MoeShape& shape) = 0;
  // Runs every batch. All experts have the scratch's shape. Never fails on data: a NaN in a row
  // gives NaN in that row only. Two threads with two scratches may run at once. Allocates nothing.
  virtual void RunExperts(std::span<const ExpertRows> batches, KernelScratch& scratch) = 0;
  // Runs batches from the first on until `stop` returns true, and returns how many: at least one.
  // `stop` is asked on the calling thread, after each expert that this thread has run. A device
  // whose runs are never long may run all, as this does.
  virtual std::size_t RunExpertsUntil(std::span<const ExpertRows> batches, KernelScratch& scratch,
                                      absl::FunctionRef<bool()> /*stop*/) {
    RunExperts(batches, scratch);
    return batches.size();
  }
  [[nodiscard]] virtual const RowOps& row_ops() const = 0;
};

}  // namespace switchyard
