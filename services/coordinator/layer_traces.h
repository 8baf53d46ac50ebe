// Explains why rows of a layer travel as they do, or why they cannot.
//
// The decision is made again at the time of the query, from the deployment, its checkpoint and the
// present workers. So a refused deployment, which has no plan, can be explained. Pure; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "coordinator/spec/deployment.h"
#include "coordinator/view.h"
#include "core/dispatch_config.h"
#include "core/resolve/decision_trace.h"

namespace switchyard {

// The deployment with what questions about its plan are about: the revision that serves, where it
// is known. What was applied since may be refused, or still be staged.
DeploymentView AsServed(const DeploymentView& deployment);

// How the checkpoint stores the layer. Errors: kNotFound (UNKNOWN_LAYER) when the deployment as
// applied does not have it; a plan from before a change of its checkpoint or model may still have
// it.
absl::StatusOr<LayerStorage> StorageOfLayer(const DeploymentView& deployment, LayerId layer);

// Decisions for the layer, by phase (unset: every phase that the deployment serves), then by kind
// of worker, with the limits of their devices. The workers are those of the plan that are present,
// or, without a plan, all that are present; of each kind those that suit the model, or all of them
// if none does. Empty without workers. Errors: those of StorageOfLayer.
absl::StatusOr<std::vector<DecisionTrace>> TracesOf(const CoordinatorView& view,
                                                    const DeploymentView& deployment, LayerId layer,
                                                    std::optional<Phase> phase);

}  // namespace switchyard
