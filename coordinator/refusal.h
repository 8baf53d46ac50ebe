// Refusals: deployments that no set of workers can serve, because what they request contradicts
// what their checkpoint contains. They are reported as errors at once, whereas a deployment that
// only lacks workers waits for them. Pure; thread-safe.
#pragma once

#include "absl/status/status.h"

#include "coordinator/spec/deployment_record.h"

namespace switchyard {

// True for kFailedPrecondition (BAD_CONFIG): the deployment's request to the experts is at fault,
// and not missing workers, memory or proven capabilities.
bool IsRefusal(const absl::Status& why_no_plan);

// OK when `record` could be served by workers of at least one kind that have proven everything
// their kind can do; how many of them it takes is not checked. Else the error of PlanConfigs for
// the first kind. Cost: the configs of one plan, for each kind up to the first that suits.
absl::Status CheckServable(const DeploymentRecord& record);

}  // namespace switchyard
