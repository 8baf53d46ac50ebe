#include "coordinator/refusal.h"

#include <vector>

#include "absl/strings/str_cat.h"

#include "coordinator/config_planner.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/what_if.h"

namespace switchyard {

bool IsRefusal(const absl::Status& why_no_plan) {
  // Both, since each of them also stands for other failures to make a plan.
  return why_no_plan.code() == absl::StatusCode::kFailedPrecondition &&
         ReasonOf(why_no_plan) == Reason::kBadConfig;
}

absl::Status CheckServable(const DeploymentRecord& record) {
  SY_ASSIGN_OR_RETURN(const std::vector<const DeviceProfile*> kinds, ProfilesNamed(""));
  absl::Status first;
  // Best-equipped workers, because what real ones lack may be mended by other ones.
  for (const DeviceProfile* kind : kinds) {
    const std::vector<CapabilitySet> worker{FullCapabilities(*kind)};
    const absl::Status would = PlanConfigs(record.spec, record.facts, worker).status();
    // One kind that would do is enough: such workers may still register.
    if (would.ok()) return absl::OkStatus();
    first.Update(would);
  }
  return WithMetadata(Annotate(first, absl::StrCat("deployment ", record.spec.name)), "deployment",
                      record.spec.name);
}

}  // namespace switchyard
