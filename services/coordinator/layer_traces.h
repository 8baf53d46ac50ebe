// Why rows of a layer travel as they do, or why they cannot, asked again at the time of the query:
// from what the deployment as it is applied now asks for, what its checkpoint says of the layer,
// and the workers that there are. A deployment that is refused has no plan, and still answers.
// Pure; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "coordinator/deployment.h"
#include "coordinator/view.h"
#include "core/dispatch_config.h"
#include "core/resolve/decision_trace.h"

namespace switchyard {

// What the checkpoint says about the layer.
// Errors: kNotFound (UNKNOWN_LAYER) when the deployment as applied does not have it: a plan may
// serve on from before its checkpoint or model was changed.
absl::StatusOr<LayerStorage> StorageOfLayer(const DeploymentView& deployment, LayerId layer);

// By phase (unset: all that the deployment serves), then kind of worker; the limits of the devices
// count. The workers are those of the plan that are there, or, without a plan, all that are; of
// each kind those that suit the model, or all where none does. Empty without workers.
// Errors: those of StorageOfLayer.
absl::StatusOr<std::vector<DecisionTrace>> TracesOf(const CoordinatorView& view,
                                                    const DeploymentView& deployment, LayerId layer,
                                                    std::optional<Phase> phase);

}  // namespace switchyard
