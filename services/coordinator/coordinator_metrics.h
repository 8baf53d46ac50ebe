// The metrics of a coordinator, as docs/OPERATIONS.md lists them.
#pragma once

#include <string>

#include "coordinator/threads/driver_counters.h"
#include "coordinator/view.h"
#include "services/system/health_monitor.h"

namespace switchyard {

// Prometheus' text format. Pure; linear in workers and deployments. Its series are bounded by
// CoordinatorOptions::max_deployments: none has the name of a worker, an expert or a layer.
std::string CoordinatorMetrics(const CoordinatorView& view, const DriverCounters& counters,
                               const Health& health);

}  // namespace switchyard
