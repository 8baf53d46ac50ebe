// The fate of each tensor of a BF16 checkpoint, decided completely before anything is written.
//
// Routed experts of MoE layers are quantized; everything else (attention, router, norms,
// embeddings, shared experts, draft layers, layers that are to stay in BF16) is copied byte for
// byte. Experts that are packed in one tensor of a layer are written one by one, because no reader
// accepts quantized packed experts. Immutable; thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "model/experts/layer_experts.h"
#include "model/safetensors/checkpoint_tensors.h"
#include "quantize/config_writer.h"
#include "quantize/safetensors_writer.h"
#include "quantize/scheme_table.h"

namespace switchyard {

struct PlanRequest {
  const WriteScheme* scheme = nullptr;
  std::vector<std::string> exclude;  // globs, or "re:" and a regular expression
  std::vector<std::int32_t> keep_bf16_layers = {};
};

struct PlannedLayer {
  std::int32_t layer = 0;
  ExpertModules from;
  ExpertModules to;  // of `from`, but never packed; as it was where the layer stays in BF16
  MoeShape shape;    // top_k is not filled in
  bool quantized = false;
};

struct CheckpointPlan {
  const WriteScheme* scheme = nullptr;
  std::string model_type;
  std::vector<PlannedLayer> layers;        // every MoE layer but drafts, ascending
  std::vector<std::string> copied;         // tensors, ascending
  std::vector<PlannedTensor> tensors;      // of the new checkpoint: copied, then layer by layer
  std::vector<DescribedTensor> described;  // the same, in that order
  std::uint64_t bytes_before = 0;          // of all tensors
  std::uint64_t bytes_after = 0;

  [[nodiscard]] std::vector<std::string> QuantizedContainers() const;
};

// Reads headers, no tensor.
// Errors: kInvalidArgument (BAD_CONFIG): config.json without model_type, layers or experts, a layer
// to keep that is not an MoE layer, a pattern that names nothing or only some of a layer's experts,
// nothing left to quantize, CheckSizes; kUnimplemented (UNSUPPORTED): a model_type whose experts'
// names are not known, packed experts of a family that has no other names; (CHECKPOINT): experts
// that are missing (including all of a layer that has a router) or not BF16, UNEXPECTED_TENSOR: a
// tensor of an expert other than its weights, such as a bias.
absl::StatusOr<CheckpointPlan> PlanCheckpoint(const CheckpointTensors& tensors,
                                              const std::string& config_json,
                                              const PlanRequest& request);

// "weight_scale_inv" for the scale of fp8_block. `role` is one of the layout's.
std::string SuffixOf(const ProjectionQuant& quant, Projection projection, TensorRole role);

}  // namespace switchyard
