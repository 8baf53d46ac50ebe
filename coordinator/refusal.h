// Deployments that no worker mends: what they ask for and what their checkpoint holds do not go
// together. Whoever waits for such a deployment waits for nothing. Pure; thread-safe.
#pragma once

#include "absl/status/status.h"

#include "coordinator/deployment.h"

namespace switchyard {

// What a deployment is doing while it is refused.
inline constexpr char kRefusedActivity[] =
    "refused: what it asks for can never work; apply it changed";

// Whether a plan was refused for what its deployment asks of the experts, kFailedPrecondition
// (BAD_CONFIG), and not for want of workers, of their memory or of what they proved.
bool IsRefusal(const absl::Status& why_no_plan);

// OK when a worker of some kind that has proven everything its kind can do would serve `record`,
// and more of them may be needed; else what PlanConfigs says of the first kind. Cost: that of one
// plan without its placement, for each kind up to the first that does.
absl::Status CheckServable(const DeploymentRecord& record);

}  // namespace switchyard
