// Queries about an edge: one of the plan, or one that the plan does not have.
//
// The answer for an edge outside the plan is hypothetical (core/resolve/what_if.h): it assumes one
// worker that has proven everything its kind can do, the deployment as it is applied now, and what
// its checkpoint says about the layer: scheme, role, exclusion and quant config. The limits of that
// one device are checked as in a plan (CheckModeLimits); with more workers, limits on their number
// may apply as well. Pure; thread-safe.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "coordinator/view.h"
#include "core/device_profile.h"
#include "core/dispatch_config.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {

struct EdgeQuery {
  std::vector<const DeviceProfile*> sources;  // at least one, all of one kind
  std::vector<const DeviceProfile*> workers;  // the same
  // Both ends name a kind. Plans have kinds and no profiles, so that the answer for a profile is
  // always hypothetical.
  bool of_kinds = true;

  // True when `edge`, one of a plan, is the one in the query.
  [[nodiscard]] bool Is(const Edge& edge) const;
};

// Errors: kInvalidArgument (BAD_REQUEST) when an end is missing or is neither a kind nor a profile;
// it suggests the nearest name.
absl::StatusOr<EdgeQuery> ParseEdgeQuery(const v1::EdgeQuery& proto);

// The query from the sources that plans are made for to every kind of worker.
absl::StatusOr<EdgeQuery> EveryKind();

// One answer for each source, worker and phase (`phase` unset: every phase that the deployment
// serves). Errors: kNotFound (UNKNOWN_LAYER) when the deployment as applied does not have `layer`;
// the serving plan may still have it.
absl::StatusOr<std::vector<v1::HypotheticalDispatch>> HypotheticalDispatches(
    const DeploymentView& deployment, LayerId layer, std::optional<Phase> phase,
    const EdgeQuery& query);

}  // namespace switchyard
