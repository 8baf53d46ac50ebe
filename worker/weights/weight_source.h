// The seam for the bytes of a logical expert: from a checkpoint, made up from a seed, and later
// from a replica on another worker. weight_source_registry.h chooses by the text of a deployment.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "core/ids.h"
#include "core/moe_shape.h"
#include "core/quant_scheme.h"
#include "model/expert_weights.h"

namespace switchyard {

// Thread-safe: a worker loads several experts side by side.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The weights of one expert, in the shape of shape(), verified against the hashes that the source
  // was made with: what comes back is what the deployment's manifest says. Blocks for the read.
  // Errors: kInvalidArgument (UNKNOWN_LAYER, EXPERT_OUT_OF_RANGE); kDataLoss (WEIGHT_HASH) naming
  // the tensor and both hashes; kNotFound, kUnimplemented or kDataLoss (CHECKPOINT) naming file and
  // tensor.
  virtual absl::StatusOr<ExpertWeights> Load(LayerId layer, ExpertId expert) = 0;
  [[nodiscard]] virtual MoeShape shape() const = 0;
  // How the weights of a layer are stored; kNone for one that the model does not have.
  [[nodiscard]] virtual QuantScheme SchemeOf(LayerId layer) const = 0;
  // For logs and error texts: "checkpoint /models/m", "synthetic:seed=7,...".
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace switchyard
