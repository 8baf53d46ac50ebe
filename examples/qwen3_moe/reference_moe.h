// The routed experts in this process, read directly from the checkpoint. Deployments are compared
// with it, and it runs a model without a deployment.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "examples/qwen3_moe/decoder_weights.h"
#include "examples/qwen3_moe/moe_call.h"
#include "examples/qwen3_moe/panel_matmul.h"
#include "model/checkpoint.h"

namespace switchyard::qwen3_moe {

// Computes in FP32; only x is BF16. A row of y only depends on its own x, ids and weights, and the
// experts' outputs are summed in ascending k. Immutable after Load; thread-safe.
class ReferenceMoe {
 public:
  // Reads all routed experts as FP32, which takes twice their size in BF16. Errors: those of the
  // checkpoint.
  static absl::StatusOr<std::unique_ptr<ReferenceMoe>> Load(const Checkpoint& checkpoint,
                                                            const DecoderDims& dims);

  // Runs one call. Checks it first, because golden files and tests may contain anything.
  // An id of -1 means no expert. Errors: kInvalidArgument (UNKNOWN_LAYER, BAD_SHAPE, BAD_TOP_K,
  // EXPERT_OUT_OF_RANGE).
  [[nodiscard]] absl::Status Run(const MoeCall& call) const;

 private:
  // The packed weights of one expert, in FP32.
  struct Expert {
    PackedMatrix gate;                         // [intermediate, hidden]
    PackedMatrix up;                           // [intermediate, hidden]
    PackedMatrix down;                         // [hidden, intermediate]
    std::array<std::vector<float>, 3> biases;  // by Projection; empty: none
  };

  explicit ReferenceMoe(const DecoderDims& dims) : dims_(dims) {}
  // Checks layer, top-k, sizes and ids of a call.
  [[nodiscard]] absl::Status Check(const MoeCall& call) const;

  DecoderDims dims_;
  std::vector<std::vector<Expert>> layers_;
};

// Wraps `moe` in a MoeFn that keeps it alive.
MoeFn MakeReferenceMoe(std::shared_ptr<const ReferenceMoe> moe);

}  // namespace switchyard::qwen3_moe
