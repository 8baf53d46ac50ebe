// When a coordinator is live and ready. It needs no worker and no deployment to be ready: workers
// reach it through the same Service that hides processes that are not.
#pragma once

#include <atomic>

#include "core/base/clock.h"
#include "services/system/health_monitor.h"

namespace switchyard {

class Driver;

// The name of a coordinator's readiness in the health service of gRPC; "" is its liveness.
inline constexpr char kCoordinatorHealthName[] = "switchyard.coordinator";

class CoordinatorHealth {
 public:
  // Both outlive this object. The driver exists, so its store is open and was read.
  CoordinatorHealth(const Driver* driver, const Clock* clock) : driver_(driver), clock_(clock) {}

  // The port takes workers and sessions from now on, or does not any more. Thread-safe.
  void SetAccepting(bool accepting) { accepting_ = accepting; }
  // For HealthMonitor. One thread at a time; does not block.
  [[nodiscard]] Health Look();

 private:
  const Driver* const driver_;
  const Clock* const clock_;
  std::atomic<bool> accepting_{false};
  TurnWatch turns_;
};

}  // namespace switchyard
