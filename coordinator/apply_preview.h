// The answer to a dry run.
#pragma once

#include "coordinator/deployment_controller.h"
#include "coordinator/spec/deployment_record.h"
#include "coordinator/view.h"
#include "core/base/clock.h"

namespace switchyard {

// Proposes the plan that `record` would get now, or says why the available workers allow none.
// `running`: the deployment of that name; null: none exists. Changes nothing.
DeploymentView PreviewOf(const ControllerContext& context, const DeploymentController* running,
                         const DeploymentRecord& record, TimePoint now);

}  // namespace switchyard
