// The seam for the weights of a logical expert. They come from a checkpoint, from a seed or, later,
// from a replica on another worker. weight_source_registry.h chooses the implementation by the
// checkpoint text of a deployment.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "core/ids.h"
#include "core/moe_shape.h"
#include "core/quant_scheme.h"
#include "model/expert_weights.h"

namespace switchyard {

// Thread-safe, because a worker loads several experts in parallel.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // The weights of one expert, in the shape of shape(), verified against the hashes in the
  // deployment's manifest. Blocks while it reads. Errors: kInvalidArgument (UNKNOWN_LAYER,
  // EXPERT_OUT_OF_RANGE); kDataLoss (WEIGHT_HASH) with the tensor and both hashes; kNotFound,
  // kUnimplemented or kDataLoss (CHECKPOINT) with the file and the tensor.
  virtual absl::StatusOr<ExpertWeights> Load(LayerId layer, ExpertId expert) = 0;
  // The sizes of every MoE layer.
  [[nodiscard]] virtual MoeShape shape() const = 0;
  // How the weights of a layer are stored; kNone for a layer that the model does not have. By
  // layer, because drafts and first layers are often stored differently.
  [[nodiscard]] virtual QuantScheme SchemeOf(LayerId layer) const = 0;
  // For logs and error texts: "checkpoint /models/m", "synthetic:seed=7,...".
  [[nodiscard]] virtual std::string describe() const = 0;
};

}  // namespace switchyard
