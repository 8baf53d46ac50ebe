// Decides how rows travel: one DispatchConfig for each (layer, phase, edge), each with its reasons.
//
// Pure: the deployment, the model and the workers' capabilities decide, no environment and no
// state, so that two deployments cannot disturb each other. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/deployment.h"
#include "core/capability.h"
#include "core/dispatch_config.h"
#include "core/moe_shape.h"
#include "core/resolve/decision_trace.h"
#include "core/resolve/dispatch_resolver.h"

namespace switchyard {

// Errors: kUnimplemented (UNSUPPORTED) when the worker takes neither the model's scheme nor BF16
// rows; kInvalidArgument (BAD_TOP_K) when it takes no such top-k; (BAD_CONFIG) when its device
// profile is unknown or of another kind.
absl::Status CheckWorkerSuits(const ModelFacts& facts, const CapabilitySet& worker);

// Kinds of sources that plans are made for.
std::span<const DeviceKind> PlannedSources();

// The mode of `phase` when the deployment does not say: low_latency in decode, normal otherwise.
DispatchMode DefaultModeOf(Phase phase);

// Errors: kInvalidArgument (BAD_CONFIG) when `spec` names a layer that the model does not have.
absl::Status CheckLayersExist(const DeploymentSpec& spec, const ModelFacts& facts);

// What is known and asked for about `layer` in `phase`, without the ends of an edge: `source` and
// `workers` are the caller's to fill in. `spec` is complete.
DispatchRequest RequestFor(const DeploymentSpec& spec, const MoeShape& shape, LayerId layer,
                           const LayerStorage& storage, const PhaseSpec& phase);

// The config that `trace`, which has an outcome, stands for: the decision on `request`.
DispatchConfig ConfigOf(const DispatchRequest& request, const DecisionTrace& trace);

// Ascending by (layer, phase, edge). `spec` is complete, `workers` those of the plan in order, each
// one checked by CheckWorkerSuits. Each config is what core/resolve/dispatch_resolver.h decides for
// its layer and edge, and its trail says why. Errors: those of CheckModeLimits, naming the phase,
// those of ResolveDispatch, and those of CheckLayersExist. What there is to be told about them is
// added to `warnings`, the first of each id.
absl::StatusOr<std::vector<DispatchConfig>> PlanConfigs(const DeploymentSpec& spec,
                                                        const ModelFacts& facts,
                                                        std::span<const CapabilitySet> workers,
                                                        std::vector<Warning>* warnings = nullptr);

}  // namespace switchyard
