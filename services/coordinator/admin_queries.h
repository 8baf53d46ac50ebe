// The coordinator's read-only calls, as pure functions of its view. Thread-safe.
//
// A deployment that a request leaves unnamed is the only one there is.
// Errors: kNotFound (UNKNOWN_MODEL) for a deployment that is not there, naming those that are;
// kInvalidArgument (BAD_REQUEST) when none was named and there are several; kUnavailable
// (NOT_READY) from GetPlan when it has no committed plan yet; kNotFound (UNKNOWN_LAYER).
#pragma once

#include "absl/status/statusor.h"

#include "coordinator/view.h"
#include "switchyard/v1/coordinator.pb.h"

namespace switchyard {

// What applying, or a dry run of it, came to, with what there is to be told; a dry run's with the
// configs of the plan that would be.
v1::ApplyDeploymentResponse ApplyResponse(const DeploymentView& view);
absl::StatusOr<v1::GetDeploymentResponse> GetDeployment(const CoordinatorView& view,
                                                        const v1::GetDeploymentRequest& request);
v1::ListDeploymentsResponse ListDeployments(const CoordinatorView& view);
v1::ListModelsResponse ListModels(const CoordinatorView& view);
v1::ListWorkersResponse ListWorkers(const CoordinatorView& view);
absl::StatusOr<v1::GetPlanResponse> GetPlan(const CoordinatorView& view,
                                            const v1::GetPlanRequest& request);
// The plan's part of the layer and the decisions behind it; without a plan the decisions alone
// (services/coordinator/layer_traces.h), so that a refused deployment can be asked why. An edge
// that is asked for and that the plan does not have is answered by
// services/coordinator/edge_query.h, and so is every kind of worker where there is neither a plan
// nor a worker; their errors are these, too.
absl::StatusOr<v1::ExplainLayerResponse> ExplainLayer(const CoordinatorView& view,
                                                      const v1::ExplainLayerRequest& request);

}  // namespace switchyard
