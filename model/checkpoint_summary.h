// A layer-by-layer summary of a checkpoint, for an operator who checks it before anything runs.
//
// Reads headers, configs and the experts' input scales, no weight. A broken layer has
// an error in its own status; the others are still read. Faults in the weights themselves, such as
// a scale that is NaN, are found when they are loaded: model/experts/layer_experts.h. Plain data;
// thread-safe. Cost: the headers; for each layer 3 * experts lookups and, with static scales, as
// many small reads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/resolve/dispatch_resolver.h"
#include "model/experts/layer_experts.h"
#include "model/experts/moe_outline.h"
#include "model/quant/config/layer_quant.h"
#include "model/quant/config/quant_config.h"
#include "model/safetensors/tensor_dtype.h"

namespace switchyard {

// One MoE layer. A broken layer has the fields that were read before its fault.
struct LayerSummary {
  LayerId layer;                                 // drafts in a list of their own begin at 0
  LayerRole role = LayerRole::kBase;             // draft: MTP, nextn
  ExpertModules modules;                         // its names
  std::optional<LayerQuant> quant;               // unset: could not be read, see `status`
  std::uint64_t expert_bytes = 0;                // of all its experts, as stored
  std::optional<LayerInputScales> input_scales;  // unset: the checkpoint has none
  std::vector<std::string> warnings;             // whole sentences
  absl::Status status;                           // the layer's first fault, or OK
};

// The tensors of one dtype, in the whole checkpoint.
struct DtypeTotal {
  TensorDtype dtype = TensorDtype::kBf16;
  std::int64_t tensors = 0;
  std::uint64_t bytes = 0;
  std::uint64_t expert_bytes = 0;  // of those, of the layers' experts
};

// The whole checkpoint; `layers` holds every MoE layer, broken or not.
struct CheckpointSummary {
  std::string dir;
  MoeOutline outline;
  std::string quant_family;           // "none", "fp8", ...
  DispatchKeys dispatch;              // the config's keys about rows
  std::vector<LayerSummary> layers;   // base layers, then drafts
  std::vector<DtypeTotal> totals;     // by dtype; only dtypes that occur
  std::vector<std::string> warnings;  // whole sentences
};

// Errors: those of CheckpointTensors::Open, ParseMoeOutline and LoadQuantConfig.
// A fault of one layer is in that layer; only a fault that hides the layers themselves is an error.
absl::StatusOr<CheckpointSummary> SummarizeCheckpoint(const std::string& dir);

// ResolverFactsOf (layer_facts.h) of `layer`, whose quant is known. Errors: as there.
absl::StatusOr<LayerFacts> FactsOf(const CheckpointSummary& summary, const LayerSummary& layer);

}  // namespace switchyard
