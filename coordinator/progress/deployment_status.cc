#include "coordinator/progress/deployment_status.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {

void DeploymentStatus::SetRecord(const absl::Status& refusal) {
  refusal_ = refusal;
  refusal_told_ = false;
  no_plan_is_refusal_ = false;
  problem_ = refusal_;
  if (!refusal_.ok()) activity_ = kRefusedActivity;
}

void DeploymentStatus::SetNoPlan(const absl::Status& why, bool is_refusal, bool of_record) {
  activity_ = "waiting for workers that can hold the model";
  if (!of_record) return;
  no_plan_is_refusal_ = is_refusal;
  problem_ = why;
  if (refused()) activity_ = kRefusedActivity;
}

void DeploymentStatus::SetServing(Epoch epoch, bool of_record) {
  activity_ = absl::StrCat("serving epoch ", epoch.value);
  if (of_record) {
    no_plan_is_refusal_ = false;
    refusal_told_ = false;
    problem_ = absl::OkStatus();
  } else {
    absl::StrAppend(&activity_, "; what was applied last is ", kRefusedActivity);
  }
}

void DeploymentStatus::SetGivenUp(Epoch epoch, const absl::Status& why) {
  activity_ = absl::StrFormat("epoch %d was given up; the next try follows", epoch.value);
  problem_ = why;
}

absl::Status DeploymentStatus::WhyNotServing(const std::string& deployment,
                                             const std::string& doing) const {
  // The refusal before everything else: it says that trying again is pointless.
  if (!refusal_.ok()) return refusal_;
  if (no_plan_is_refusal_) return problem_;
  // Both what it waits for and what went wrong last: either may be what the caller can mend.
  std::string why = doing.empty() ? activity_ : doing;
  if (!problem_.ok()) {
    absl::StrAppend(&why, "; ", problem_.message(), " (", absl::StatusCodeToString(problem_.code()),
                    ", ", ReasonName(ReasonOf(problem_)), ")");
  }
  return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                   absl::StrFormat("deployment %s does not serve: %s; try again", deployment, why),
                   {{"deployment", deployment}});
}

}  // namespace switchyard
