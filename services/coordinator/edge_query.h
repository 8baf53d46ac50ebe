// Edges that somebody asks about: those of the plan, or what would be decided for one that it does
// not have.
//
// An answer for an edge that is not there is a hypothesis (core/resolve/what_if.h): it holds for
// one worker that has proven everything its kind can do, under what the deployment as applied asks
// for and what its checkpoint says of the layer: scheme, role, exclusion and quant config. The
// limits of that one device count as a plan's do (CheckModeLimits); more workers may bring a limit
// on their number. Pure; thread-safe.
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
  // A kind was named on both ends. A plan knows kinds and no profiles, so that a profile is always
  // a hypothesis.
  bool of_kinds = true;

  // True when an edge of a plan is the one that is asked for.
  [[nodiscard]] bool Is(const Edge& edge) const;
};

// Errors: kInvalidArgument (BAD_REQUEST) when an end is missing or no kind of device, with the
// nearest.
absl::StatusOr<EdgeQuery> ParseEdgeQuery(const v1::EdgeQuery& proto);

// From the source of every plan to every kind of worker.
absl::StatusOr<EdgeQuery> EveryKind();

// One answer for each source, worker and phase (`phase` unset: all that the deployment serves).
// Errors: kNotFound (UNKNOWN_LAYER) when the deployment as applied does not have `layer`: the plan
// that serves may be of its spec before.
absl::StatusOr<std::vector<v1::HypotheticalDispatch>> WouldTravel(const DeploymentView& deployment,
                                                                  LayerId layer,
                                                                  std::optional<Phase> phase,
                                                                  const EdgeQuery& query);

}  // namespace switchyard
