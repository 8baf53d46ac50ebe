#include "services/coordinator/coordinator_health.h"

#include <chrono>

#include "absl/strings/str_format.h"

#include "coordinator/driver.h"

namespace switchyard {

Health CoordinatorHealth::Look() {
  Health health;
  const Duration still = turns_.StandsStill(driver_->counters().turns, clock_->Now());
  if (still >= kStandstillMax) {
    health.not_live = absl::StrFormat(
        "the coordinator's thread has stood still for %d s; restart the process, workers and "
        "sessions go on meanwhile",
        std::chrono::duration_cast<std::chrono::seconds>(still).count());
    health.not_ready = health.not_live;
  } else if (!accepting_) {
    health.not_ready = "the port is closed: the process starts, or ends; wait, its log says more";
  }
  return health;
}

}  // namespace switchyard
