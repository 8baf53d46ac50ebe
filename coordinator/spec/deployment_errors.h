// Errors about deployments that several parts give.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace switchyard {

// kNotFound (UNKNOWN_MODEL): "there is no deployment "local"; ...", and where to look.
absl::Status NoDeployment(const std::string& deployment);
// kNotFound (UNKNOWN_MODEL): "deployment local is being deleted; ...".
absl::Status DeploymentLeaves(const std::string& deployment);
// kUnavailable (NOT_READY): "deployment local is `with`; try again when that has finished".
absl::Status DeploymentBusy(const std::string& deployment, absl::string_view with);

}  // namespace switchyard
