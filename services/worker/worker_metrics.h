// The metrics of a worker, as docs/METRICS.md lists them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/control_messages.h"
#include "core/tracing/trace_counts.h"
#include "services/system/health_monitor.h"
#include "services/system/metrics_text.h"
#include "services/worker/worker_server.h"
#include "worker/collective/expert/group_service.h"
#include "worker/expert/expert_service.h"

namespace switchyard {

// The facts that a scrape of a worker shows.
struct WorkerFacts {
  Health health;
  Heartbeat heartbeat;
  std::vector<ResidentEpoch> resident;
  std::int64_t weight_bytes = 0;
  std::int64_t weight_bytes_max = 0;  // 0: no limit
  GatewayUse gateway;
  std::size_t groups_open = 0;
  // Threads write these while they are read. Null: not shown.
  const ExpertTimes* times = nullptr;
  const LoadTimes* loads = nullptr;
  const GatewayCounts* gateway_counts = nullptr;
  const GroupCounts* groups = nullptr;
  TraceCounts traces = {};
  // Unset: the data thread did not answer in time.
  std::optional<ExpertServiceView> view;
};

// Collects them; they are valid as long as the parts. `groups` may be null. Waits for the data
// thread at most kScrapeWait, in its queue of calls: the thread itself waits for nothing.
// Thread-safe.
inline constexpr Duration kScrapeWait = std::chrono::seconds(1);
WorkerFacts CollectWorkerFacts(const Health& health, std::int64_t weight_bytes_max,
                               const WorkerServer& server, ExpertService* experts,
                               const GroupService* groups);

// For a page in Prometheus' text format, and for syctl. Its series are bounded by the deployments
// that the worker serves: none has the name of a peer, an expert or a layer. A histogram has the
// labels that something was observed for. What only the data thread knows is left out when it did
// not answer.
MetricsText WorkerMetrics(const WorkerFacts& facts);

}  // namespace switchyard
