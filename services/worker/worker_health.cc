#include "services/worker/worker_health.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/strings/str_format.h"

#include "core/control_messages.h"
#include "worker/expert/expert_service.h"

namespace switchyard {

Health WorkerHealth::Look() {
  Health health;
  const Duration still = turns_.StandsStill(experts_->MakeHeartbeat().progress, clock_->Now());
  if (still >= kStandstillMax) {
    health.not_live = absl::StrFormat(
        "the data thread has stood still for %d s; restart the process, plans do without it",
        std::chrono::duration_cast<std::chrono::seconds>(still).count());
    health.not_ready = health.not_live;
    return health;
  }
  const std::vector<ResidentEpoch> resident = experts_->Resident();
  if (std::ranges::any_of(resident, &ResidentEpoch::committed)) return health;
  health.not_ready =
      resident.empty() && experts_->MakeHeartbeat().staging.empty()
          ? "no deployment uses this worker; \"syctl get deployments\" says what they wait for"
          : "the first epoch is being loaded; \"syctl get deployments\" says how far it is";
  return health;
}

}  // namespace switchyard
