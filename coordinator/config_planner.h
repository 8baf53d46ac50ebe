// Decides how rows travel: one DispatchConfig for each (layer, phase, edge), with its reasons.
//
// Pure: the outcome depends only on the deployment, the model and the workers' capabilities, and on
// no environment or state, so that two deployments cannot disturb each other. Thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/spec/deployment.h"
#include "core/capability.h"
#include "core/dispatch_config.h"
#include "core/moe_shape.h"
#include "core/resolve/decision_trace.h"
#include "core/resolve/dispatch_resolver.h"

namespace switchyard {

// OK when the worker can hold experts of the model. Errors: kUnimplemented (UNSUPPORTED) when it
// does not take BF16 rows or a scheme of some layer; kInvalidArgument (BAD_TOP_K) when the model's
// top-k is above its limit, (BAD_CONFIG) when its device profile is unknown or of another kind.
absl::Status CheckWorkerSuits(const ModelFacts& facts, const CapabilitySet& worker);

// The kinds of sources that plans may have configs for, and to which workers.
std::span<const DeviceKind> PlannedSources();
bool IsPlanned(const Edge& edge);

// Errors: kInvalidArgument (BAD_CONFIG) when `spec` names a layer that the model does not have.
absl::Status CheckLayersExist(const DeploymentSpec& spec, const ModelFacts& facts);

// The request to the resolver for `layer` in `phase`. The caller fills in `source` and `workers`,
// the two ends of an edge. `spec` is complete (CompleteSpec).
DispatchRequest RequestFor(const DeploymentSpec& spec, const MoeShape& shape, LayerId layer,
                           const LayerStorage& storage, const PhaseSpec& phase);

// The config that results from `trace`, the decision on `request`. REQUIRES: it has an outcome.
DispatchConfig ConfigOf(const DispatchRequest& request, const DecisionTrace& trace);

// All configs of a plan, ascending by (layer, phase, edge). `spec` is complete; `workers` are those
// of the plan, in order, each one checked by CheckWorkerSuits. core/resolve/dispatch_resolver.h
// decides each config, and its trail says why. Warnings about them are added to `warnings`, the
// first of each id. Errors: those of CheckModeLimits, with the phase, of ResolveDispatch and of
// CheckLayersExist. Cost: one resolution for each config.
absl::StatusOr<std::vector<DispatchConfig>> PlanConfigs(const DeploymentSpec& spec,
                                                        const ModelFacts& facts,
                                                        std::span<const CapabilitySet> workers,
                                                        std::vector<Warning>* warnings = nullptr);

}  // namespace switchyard
