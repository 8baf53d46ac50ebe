// The metrics of a coordinator, as docs/METRICS.md lists them.
#pragma once

#include "coordinator/threads/driver_counters.h"
#include "coordinator/view.h"
#include "services/system/health_monitor.h"
#include "services/system/metrics_text.h"

namespace switchyard {

// For a page in Prometheus' text format, and for syctl. Pure; linear in workers and deployments.
// Its series are bounded by CoordinatorOptions::max_deployments: none has the name of a worker, an
// expert or a layer.
MetricsText CoordinatorMetrics(const CoordinatorView& view, const DriverCounters& counters,
                               const Health& health);

}  // namespace switchyard
