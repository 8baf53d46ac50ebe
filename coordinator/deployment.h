// What an operator asks for (DeploymentSpec) and what its checkpoint turned out to hold
// (ModelFacts). Plain data; both are stored, so that a returning coordinator needs no checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/clock.h"
#include "core/dispatch_config.h"
#include "core/ids.h"
#include "core/moe_shape.h"
#include "core/quant_scheme.h"
#include "core/resolve/dtype_option.h"
#include "core/resolve/dtype_wish.h"
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
  DtypeChoice dispatcher_output_dtype = DtypeChoice::kAuto;  // the wire dtype that is asked for
  std::vector<LayerSpec> layers = {};

  [[nodiscard]] bool Serves(Phase phase) const;
  // Everything that is asked for about wire dtypes, each with the key that asks for it.
  [[nodiscard]] std::vector<DtypeWish> DtypeWishes() const;
  friend bool operator==(const DeploymentSpec&, const DeploymentSpec&) = default;
};

// `spec` with every default filled in and phases in ascending order.
// Errors: kInvalidArgument (BAD_CONFIG) naming the field: an empty or overlong name or one with
// characters other than [A-Za-z0-9._-], no checkpoint, a phase or a layer's phase named twice,
// counts or times below zero or above their limits.
absl::StatusOr<DeploymentSpec> CompleteSpec(const DeploymentSpec& spec);

// True for 1 to 128 characters of [A-Za-z0-9._-]: names of deployments, models and workers.
bool IsName(absl::string_view text);

struct ModelFacts {
  MoeShape shape;
  QuantScheme scheme = QuantScheme::kNone;
  std::vector<LayerId> layers;  // MoE layers, ascending
  WeightManifest manifest;

  // Upper bound of the memory that one expert of one layer takes on a worker, in bytes.
  [[nodiscard]] std::int64_t ExpertBytes() const;
  friend bool operator==(const ModelFacts&, const ModelFacts&) = default;
};

// Errors: kDataLoss (CHECKPOINT) unless sizes are positive, layers ascend and the manifest has
// exactly one row for each projection of each expert of each layer.
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
