#include "coordinator/spec/deployment_errors.h"

#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {

absl::Status NoDeployment(const std::string& deployment) {
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel,
                   absl::StrFormat("there is no deployment \"%s\"; 'syctl get deployments' lists "
                                   "those that exist",
                                   deployment),
                   {{"deployment", deployment}});
}

absl::Status DeploymentLeaves(const std::string& deployment) {
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel,
                   absl::StrFormat("deployment %s is being deleted; name another one, or apply it "
                                   "when it is gone",
                                   deployment),
                   {{"deployment", deployment}});
}

absl::Status DeploymentBusy(const std::string& deployment, absl::string_view with) {
  return MakeError(
      absl::StatusCode::kUnavailable, Reason::kNotReady,
      absl::StrFormat("deployment %s is %s; try again when that has finished", deployment, with),
      {{"deployment", deployment}});
}

}  // namespace switchyard
