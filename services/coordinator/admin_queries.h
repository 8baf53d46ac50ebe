// The coordinator's read-only calls, as pure functions of its view. Thread-safe.
//
// A request without a deployment's name means the only one. Errors: kNotFound (UNKNOWN_MODEL) for
// an unknown deployment, listing the known ones; kInvalidArgument (BAD_REQUEST) when none is named
// and several exist; from GetPlan before the first plan kUnavailable (NOT_READY), or why the
// deployment is refused; kNotFound (UNKNOWN_LAYER).
#pragma once

#include <vector>

#include "absl/status/statusor.h"

#include "coordinator/history/journal.h"
#include "coordinator/view.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {

// The outcome of an apply or a dry run, with warnings. After a dry run also the configs of the plan
// that applying would lead to.
v1::ApplyDeploymentResponse ApplyResponse(const DeploymentView& view);
absl::StatusOr<v1::GetDeploymentResponse> GetDeployment(const CoordinatorView& view,
                                                        const v1::GetDeploymentRequest& request);
// Lists cannot fail; a list may be empty.
v1::ListDeploymentsResponse ListDeployments(const CoordinatorView& view);
absl::StatusOr<v1::ListRevisionsResponse> ListRevisions(const CoordinatorView& view,
                                                        const v1::ListRevisionsRequest& request);
v1::ListModelsResponse ListModels(const CoordinatorView& view);
// `all` is the whole journal.
v1::ListEventsResponse ListEvents(const std::vector<JournalEntry>& all,
                                  const v1::ListEventsRequest& request);
v1::ListSessionsResponse ListSessions(const std::vector<SessionView>& sessions);
v1::ListWorkersResponse ListWorkers(const CoordinatorView& view);
absl::StatusOr<v1::GetPlanResponse> GetPlan(const CoordinatorView& view,
                                            const v1::GetPlanRequest& request);
// The layer's part of the plan and the decisions behind it (services/coordinator/layer_traces.h).
// Without a plan only the decisions, so that the reasons of a refused deployment can be seen. For
// an edge that the plan does not have, and for every kind of worker when there is neither a plan
// nor a worker, the answer is hypothetical (services/coordinator/edge_query.h). Errors: also those
// of these two.
absl::StatusOr<v1::ExplainLayerResponse> ExplainLayer(const CoordinatorView& view,
                                                      const v1::ExplainLayerRequest& request);

}  // namespace switchyard
