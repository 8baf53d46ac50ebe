// The metrics of a worker, as docs/OPERATIONS.md lists them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/control_messages.h"
#include "services/system/health_monitor.h"
#include "services/worker/worker_server.h"
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
  // Unset: the data thread did not answer in time.
  std::optional<ExpertServiceView> view;
};

// Collects them. Waits for the data thread at most kScrapeWait, in its queue of calls: the thread
// itself waits for nothing. Thread-safe.
inline constexpr Duration kScrapeWait = std::chrono::seconds(1);
WorkerFacts CollectWorkerFacts(const Health& health, std::int64_t weight_bytes_max,
                               const WorkerServer& server, ExpertService* experts);

// Prometheus' text format. Pure. Its series are bounded by the deployments that the worker serves:
// none has the name of a peer, an expert or a layer. What only the data thread knows is left out
// when it did not answer.
std::string WorkerMetrics(const WorkerFacts& facts);

}  // namespace switchyard
