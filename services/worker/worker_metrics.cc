#include "services/worker/worker_metrics.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <map>
#include <utility>

#include "services/system/metrics_text.h"
#include "worker/transport/frame.h"

namespace switchyard {
namespace {

constexpr MetricType kCounter = MetricType::kCounter;
constexpr MetricType kGauge = MetricType::kGauge;

void AddEpochs(const std::vector<ResidentEpoch>& resident, MetricsText* text) {
  std::uint64_t committed = 0;
  std::map<std::string, std::uint64_t> newest;  // of each deployment
  for (const ResidentEpoch& epoch : resident) {
    if (!epoch.committed) continue;
    ++committed;
    newest[epoch.deployment] = std::max(newest[epoch.deployment], epoch.epoch.value);
  }
  text->Begin(kGauge, "moe_epochs", "Epochs that this worker holds.")
      .Add(resident.size() - committed, {{"state", "staged"}})
      .Add(committed, {{"state", "committed"}});
  text->Begin(kGauge, "moe_plan_epoch", "The newest epoch that this worker serves.");
  for (const auto& [deployment, epoch] : newest) text->Add(epoch, {{"deployment", deployment}});
}

void AddMemory(const WorkerFacts& facts, MetricsText* text) {
  std::int64_t done = 0;
  std::int64_t total = 0;
  for (const StagingReport& report : facts.heartbeat.staging) {
    done += report.bytes_done;
    total += report.bytes;
  }
  const double weights_max = facts.weight_bytes_max == 0
                                 ? std::numeric_limits<double>::infinity()
                                 : static_cast<double>(facts.weight_bytes_max);
  text->Begin(kGauge, "moe_weight_bytes", "Expert weights of staged and committed epochs.")
      .Add(static_cast<double>(facts.weight_bytes));
  text->Begin(kGauge, "moe_weight_max_bytes", "What they may be; +Inf: no limit.").Add(weights_max);
  text->Begin(kGauge, "moe_staging_bytes", "Weights to load for epochs that do not serve yet.")
      .Add(static_cast<double>(total));
  text->Begin(kGauge, "moe_staging_done_bytes", "The part of them that is loaded.")
      .Add(static_cast<double>(done));
  text->Begin(kGauge, "moe_gateway_sessions_open", "Sessions through this gateway.")
      .Add(facts.gateway.sessions);
  text->Begin(kGauge, "moe_gateway_memory_bytes", "Memory that their steps take.")
      .Add(facts.gateway.memory_bytes);
  text->Begin(kGauge, "moe_gateway_memory_max_bytes", "What they may take.")
      .Add(facts.gateway.memory_bytes_max);
}

void AddTransport(const TransportStats& stats, MetricsText* text) {
  text->Begin(kCounter, "moe_frames_total", "Frames of this worker's links.")
      .Add(stats.frames_in, {{"direction", "in"}})
      .Add(stats.frames_out, {{"direction", "out"}});
  text->Begin(kCounter, "moe_frames_dropped_total", "Frames that were damaged or foreign.");
  for (std::size_t i = 1; i < stats.drops.size(); ++i) {  // 0: FrameDrop::kNone
    text->Add(stats.drops[i], {{"reason", FrameDropName(static_cast<FrameDrop>(i))}});
  }
  text->Begin(kCounter, "moe_late_wakes_total", "Sleeps that timed out although work had arrived.")
      .Add(stats.late_wakes);
  text->Begin(kGauge, "moe_links_open", "Links that are open.").Add(stats.links_open);
  text->Begin(kGauge, "moe_ring_bytes", "Rings in which their frames arrive.")
      .Add(stats.ring_bytes);
}

void AddExperts(const ExpertStats& stats, MetricsText* text) {
  text->Begin(kGauge, "moe_attachments_open", "Attachments of sources.").Add(stats.attachments);
  text->Begin(kCounter, "moe_requests_total", "Requests of sources, by their answer.")
      .Add(stats.requests, {{"answer", "result"}})
      .Add(stats.refused, {{"answer", "error"}});
  text->Begin(kCounter, "moe_duplicate_requests_total",
              "Requests for a credit that was busy; dropped.")
      .Add(stats.duplicates);
  text->Begin(kCounter, "moe_rows_total", "Rows of requests that got a result.").Add(stats.rows);
  text->Begin(kCounter, "moe_nan_rows_total", "Rows whose result has a NaN.").Add(stats.nan_rows);
  text->Begin(kCounter, "moe_batches_total", "Batches that ran, also those that failed.")
      .Add(stats.batches);
}

}  // namespace

WorkerFacts CollectWorkerFacts(const Health& health, std::int64_t weight_bytes_max,
                               const WorkerServer& server, ExpertService* experts) {
  WorkerFacts facts{.health = health,
                    .heartbeat = experts->MakeHeartbeat(),
                    .resident = experts->Resident(),
                    .weight_bytes = experts->WeightBytes(),
                    .weight_bytes_max = weight_bytes_max,
                    .gateway = server.gateway_use(),
                    .view = {}};
  absl::StatusOr<ExpertServiceView> view = experts->View(kScrapeWait);
  if (view.ok()) facts.view = *std::move(view);
  return facts;
}

std::string WorkerMetrics(const WorkerFacts& facts) {
  MetricsText text;
  AddBuildInfo(&text);
  AddHealth(facts.health, &text);
  AddEpochs(facts.resident, &text);
  AddMemory(facts, &text);
  text.Begin(kCounter, "moe_data_thread_turns_total",
             "Turns of the data thread; ten a second when it is idle.")
      .Add(facts.heartbeat.progress);
  text.Begin(kGauge, "moe_batch_age_seconds", "Age of the oldest batch that runs; 0: none.")
      .Add(std::chrono::duration<double>(facts.heartbeat.batch_age).count());
  text.Begin(kGauge, "moe_data_thread_answered",
             "1 if the data thread answered this scrape; 0: its counters are missing.")
      .Add(facts.view ? 1.0 : 0.0);
  if (facts.view) {
    AddTransport(facts.view->transport, &text);
    AddExperts(facts.view->experts, &text);
  }
  return std::move(text).Take();
}

}  // namespace switchyard
