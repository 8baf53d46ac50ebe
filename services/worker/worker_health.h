// When a worker is live and ready. Neither depends on the coordinator or on a peer: a worker serves
// the epochs that it has through any failure of theirs.
#pragma once

#include "core/base/clock.h"
#include "services/system/health_monitor.h"

namespace switchyard {

class ExpertService;

// The name of a worker's readiness in the health service of gRPC; "" is its liveness.
inline constexpr char kWorkerHealthName[] = "switchyard.worker";

class WorkerHealth {
 public:
  // Both outlive this object.
  WorkerHealth(const ExpertService* experts, const Clock* clock)
      : experts_(experts), clock_(clock) {}

  // For HealthMonitor. One thread at a time; does not wait for the data thread.
  [[nodiscard]] Health Look();

 private:
  const ExpertService* const experts_;
  const Clock* const clock_;
  TurnWatch turns_;
};

}  // namespace switchyard
