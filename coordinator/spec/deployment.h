// A deployment: what an operator requests (DeploymentSpec) and what the checkpoint contains
// (ModelFacts). Plain data. Both are stored (coordinator/spec/deployment_record.h), so that a
// coordinator that restarts does not have to read the checkpoint, which takes minutes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/spec/dispatch_defaults.h"
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

// How one phase is served.
struct PhaseSpec {
  Phase phase = Phase::kMixed;
  // Unset: low_latency in decode, normal otherwise.
  std::optional<DispatchMode> mode;
  // The wire dtype of this phase; unset: that of the deployment.
  std::optional<DtypeChoice> dispatcher_output_dtype = {};
  friend bool operator==(const PhaseSpec&, const PhaseSpec&) = default;
};

// An override for one layer. The most specific of layer, phase and deployment counts.
struct LayerSpec {
  LayerId layer;
  std::optional<Phase> phase;  // unset: every phase
  DtypeChoice dispatcher_output_dtype = DtypeChoice::kAuto;
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// The file that an operator applies. CompleteSpec checks it and fills in the defaults; every other
// part of the coordinator takes complete specs only.
struct DeploymentSpec {
  std::string name;
  // Empty: the last component of `checkpoint`, or "synthetic"
  std::string model;
  // See model/model_spec.h; every worker sees the same folder.
  std::string checkpoint;
  // Empty: every phase, with its defaults.
  std::vector<PhaseSpec> phases;
  // The first epoch waits for this many workers; 0: 1.
  std::int32_t min_workers = 0;
  // The longest wait for min_workers, from the first one that joins; 0: 20 s.
  Duration join_timeout{};
  // How long sessions go on with the model that they opened once the deployment serves another one;
  // 0: they end at once. Both models are loaded meanwhile.
  Duration former_model_kept{};
  // M of low_latency; 0: kDefaultMaxTokensPerStep.
  std::int32_t max_tokens_per_step = 0;
  // The wire dtype; unset: the coordinator's default.
  std::optional<DtypeChoice> dispatcher_output_dtype = {};
  std::vector<LayerSpec> layers = {};
  // Input of rule 4 in core/resolve/dtype_order.h.
  RunnerBackend moe_runner_backend = RunnerBackend::kAuto;
  // Pools whose workers may hold its experts, ascending; empty: all workers may.
  std::vector<std::string> pools = {};
  // The coordinator's options when the deployment was applied. The coordinator sets them; a value
  // from outside is overwritten.
  DispatchDefaults coordinator_defaults = {};

  // True when sessions of `phase` may be opened.
  [[nodiscard]] bool Serves(Phase phase) const;
  // Every override of the wire dtype, with the key or option that it comes from.
  [[nodiscard]] std::vector<DtypeOverride> DtypeOverrides() const;
  friend bool operator==(const DeploymentSpec&, const DeploymentSpec&) = default;
};

// Returns `spec` with every default filled in and phases in ascending order.
// Errors: kInvalidArgument (BAD_CONFIG) naming the field: a name that is not one
// (core/base/name.h), an empty checkpoint, a phase or a layer's phase given twice, a
// pool that is no name, given twice or one too many, a count or time
// that is negative or above its limit.
absl::StatusOr<DeploymentSpec> CompleteSpec(const DeploymentSpec& spec);

// How the checkpoint stores the experts of one layer.
struct LayerStorage {
  QuantScheme scheme = QuantScheme::kNone;
  LayerRole role = LayerRole::kBase;
  // The checkpoint leaves it unquantized.
  bool excluded = false;
  bool power_of_two_scales = false;  // scale_fmt "ue8m0"
  // The checkpoint's requests to dispatch; unset for drafts and unquantized checkpoints.
  std::optional<LayerQuantConfig> quant_config = {};
  // The rule that decided the scheme: "excluded by 'lm_head'"
  std::string why = {};
  friend bool operator==(const LayerStorage&, const LayerStorage&) = default;
};

// Everything that planning needs from a checkpoint. Computed once, when the deployment is applied:
// workers that find other tensors than the manifest says refuse them.
struct ModelFacts {
  MoeShape shape;
  std::vector<LayerId> layers;        // MoE layers, ascending
  std::vector<LayerStorage> storage;  // one for each of `layers`
  WeightManifest manifest;

  // REQUIRES: `layer` is one of `layers`.
  [[nodiscard]] const LayerStorage& StorageOf(LayerId layer) const;

  // The memory that one expert takes on a worker, in bytes (core/held_expert_bytes.h), in the layer
  // where experts are largest: plans count every expert with this size.
  [[nodiscard]] std::int64_t ExpertBytes() const;
  friend bool operator==(const ModelFacts&, const ModelFacts&) = default;
};

// Errors: kDataLoss (CHECKPOINT) unless sizes are positive, layers ascend and each has its storage.
// The manifest may be missing.
absl::Status CheckLayout(const ModelFacts& facts);
// The same, and unless the manifest has exactly one row for each projection of each expert of each
// layer.
absl::Status CheckFacts(const ModelFacts& facts);

}  // namespace switchyard
