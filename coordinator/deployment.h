// What an operator asks for (DeploymentSpec) and what its checkpoint turned out to hold
// (ModelFacts). Plain data; both are stored, so that a returning coordinator needs no checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/dispatch_defaults.h"
#include "core/base/clock.h"
#include "core/dispatch_config.h"
#include "core/ids.h"
#include "core/moe_shape.h"
#include "core/quant_scheme.h"
#include "core/resolve/decision_trace.h"
#include "core/resolve/dtype_option.h"
#include "core/resolve/dtype_order.h"
#include "core/resolve/dtype_override.h"
#include "core/resolve/layer_quant_config.h"
#include "core/weight_manifest.h"

namespace switchyard {

struct PhaseSpec {
  Phase phase = Phase::kMixed;
  std::optional<DispatchMode> mode;  // unset: the config planner's choice for the phase
  // The wire dtype of this phase; unset: the deployment's.
  std::optional<DtypeChoice> dispatcher_output_dtype = {};
  friend bool operator==(const PhaseSpec&, const PhaseSpec&) = default;
};

// What is asked for one layer. The narrowest of layer, phase and deployment counts.
struct LayerSpec {
  LayerId layer;
  std::optional<Phase> phase;  // unset: all of them
  DtypeChoice dispatcher_output_dtype = DtypeChoice::kAuto;
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

struct DeploymentSpec {
  std::string name;
  std::string model;              // empty: the last component of `checkpoint`, or "synthetic"
  std::string checkpoint;         // text of model/model_spec.h; all workers see the same folder
  std::vector<PhaseSpec> phases;  // empty: all of them, with their defaults
  std::int32_t min_workers = 0;   // to wait for before the first epoch; 0: 1
  Duration join_timeout{};        // how long to wait for them, from the first that joins; 0: 20 s
  std::int32_t max_tokens_per_step = 0;  // M of low_latency; 0: kDefaultMaxTokensPerStep
  // The wire dtype that is asked for; unset: the coordinator's default.
  std::optional<DtypeChoice> dispatcher_output_dtype = {};
  std::vector<LayerSpec> layers = {};
  RunnerBackend moe_runner_backend = RunnerBackend::kAuto;  // rule 4 of core/resolve/dtype_order.h
  // Those of the coordinator when the deployment was applied; whoever applies it cannot set them.
  DispatchDefaults coordinator_defaults = {};

  [[nodiscard]] bool Serves(Phase phase) const;
  // Everything that is asked for about wire dtypes, each with the key or option that asks for it.
  [[nodiscard]] std::vector<DtypeOverride> DtypeOverrides() const;
  friend bool operator==(const DeploymentSpec&, const DeploymentSpec&) = default;
};

// `spec` with every default filled in and phases in ascending order.
// Errors: kInvalidArgument (BAD_CONFIG) naming the field: an empty or overlong name or one with
// characters other than [A-Za-z0-9._-], no checkpoint, a phase or a layer's phase named twice,
// counts or times below zero or above their limits.
absl::StatusOr<DeploymentSpec> CompleteSpec(const DeploymentSpec& spec);

// True for 1 to 128 characters of [A-Za-z0-9._-]: names of deployments, models and workers.
bool IsName(absl::string_view text);

// What the checkpoint says about one layer's experts.
struct LayerStorage {
  QuantScheme scheme = QuantScheme::kNone;
  LayerRole role = LayerRole::kBase;
  bool excluded = false;             // left out of the checkpoint's quantization
  bool power_of_two_scales = false;  // scale_fmt "ue8m0"
  // What it asks of dispatch; unset for drafts and for checkpoints that are not quantized.
  std::optional<LayerQuantConfig> quant_config = {};
  std::string why = {};  // the rule that told the scheme: "excluded by 'lm_head'"
  friend bool operator==(const LayerStorage&, const LayerStorage&) = default;
};

struct ModelFacts {
  MoeShape shape;
  std::vector<LayerId> layers;        // MoE layers, ascending
  std::vector<LayerStorage> storage;  // of each of `layers`
  WeightManifest manifest;

  // `layer` is one of `layers`.
  [[nodiscard]] const LayerStorage& StorageOf(LayerId layer) const;

  // The memory that one expert takes on a worker, in bytes (core/held_expert_bytes.h); of the layer
  // whose experts take most.
  [[nodiscard]] std::int64_t ExpertBytes() const;
  friend bool operator==(const ModelFacts&, const ModelFacts&) = default;
};

// Errors: kDataLoss (CHECKPOINT) unless sizes are positive, layers ascend, each has its storage and
// the manifest has exactly one row for each projection of each expert of each layer.
absl::Status CheckFacts(const ModelFacts& facts);

struct DeploymentRecord {
  DeploymentSpec spec;
  ModelFacts facts;
  friend bool operator==(const DeploymentRecord&, const DeploymentRecord&) = default;
};

std::string CanonicalBytes(const DeploymentRecord& record);
// kDataLoss (STORE_WRITE) for anything that CanonicalBytes did not write.
absl::StatusOr<DeploymentRecord> ParseDeploymentRecord(absl::string_view bytes);

}  // namespace switchyard
