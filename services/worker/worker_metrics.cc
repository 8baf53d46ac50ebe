#include "services/worker/worker_metrics.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <initializer_list>
#include <limits>
#include <map>
#include <utility>

#include "services/system/metrics_text.h"
#include "worker/transport/frame.h"

namespace switchyard {
namespace {

constexpr MetricType kCounter = MetricType::kCounter;
constexpr MetricType kGauge = MetricType::kGauge;
constexpr MetricType kHistogram = MetricType::kHistogram;

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

void AddExperts(const ExpertServiceView& view, const GroupCounts* groups, MetricsText* text) {
  const ExpertStats& stats = view.experts;
  const DirectStats& direct = view.direct;
  text->Begin(kGauge, "moe_attachments_open", "Attachments of sources.").Add(stats.attachments);
  text->Begin(kCounter, "moe_requests_total", "Requests of sources, by their answer.")
      .Add(stats.requests, {{"answer", "result"}})
      .Add(stats.refused, {{"answer", "error"}});
  text->Begin(kCounter, "moe_duplicate_requests_total",
              "Requests for a credit that was busy; dropped.")
      .Add(stats.duplicates);
  text->Begin(kCounter, "moe_direct_chunks_total",
              "Chunks of this gateway's sessions that its own experts ran, by their answer.")
      .Add(direct.chunks, {{"answer", "result"}})
      .Add(direct.failed, {{"answer", "error"}});
  text->Begin(kCounter, "moe_rows_total", "Rows that experts ran over, by the way they came.")
      .Add(stats.rows, {{"via", "attachment"}})
      .Add(direct.rows, {{"via", "gateway"}});
  if (groups != nullptr && groups->has_rows.load()) {
    text->Add(groups->exchange.rows.load(std::memory_order_relaxed), {{"via", "group"}});
  }
  text->Begin(kCounter, "moe_nan_rows_total", "Rows of requests and chunks with a NaN.")
      .Add(stats.nan_rows + direct.nan_rows);
  text->Begin(kCounter, "moe_batches_total", "Batches that ran, also those that failed.")
      .Add(stats.batches);
}

// Labels without an observation are left out: most of them never have one.
void AddSeen(const Histogram& histogram, std::initializer_list<MetricLabel> labels,
             MetricsText* text) {
  const HistogramCounts counts = histogram.Counts();
  if (counts.count() > 0) text->Add(counts, labels);
}

constexpr std::array kClasses{WorkClass::kDecode, WorkClass::kPrefill};
constexpr std::array kModes{DispatchMode::kNormal, DispatchMode::kLowLatency};
constexpr std::array kDtypes{DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8,
                             DispatchDtype::kNvfp4};
constexpr std::array kPaths{LinkPath::kMapped, LinkPath::kMessages, LinkPath::kInProcess};
static_assert(kClasses.size() == kWorkClasses && kModes.size() == kDispatchModes &&
              kDtypes.size() == kDispatchDtypes && kPaths.size() == ExpertTimes::kPaths);

absl::string_view NameOf(WorkClass of) { return of == WorkClass::kDecode ? "decode" : "prefill"; }

// `histogram_of` a class of work and a mode.
template <typename HistogramOf>
void AddByMode(absl::string_view name, absl::string_view help, HistogramOf histogram_of,
               MetricsText* text) {
  text->Begin(kHistogram, name, help);
  for (const WorkClass of : kClasses) {
    for (const DispatchMode mode : kModes) {
      AddSeen(histogram_of(of, mode), {{"phase", NameOf(of)}, {"mode", DispatchModeName(mode)}},
              text);
    }
  }
}

void AddRequestTimes(const ExpertTimes& times, MetricsText* text) {
  text->Begin(kHistogram, "moe_request_duration_seconds",
              "From a request's arrival until its result is sent.");
  for (const WorkClass of : kClasses) {
    for (const DispatchMode mode : kModes) {
      for (const DispatchDtype dtype : kDtypes) {
        for (const LinkPath path : kPaths) {
          AddSeen(times.Request(of, mode, dtype, path),
                  {{"phase", NameOf(of)},
                   {"mode", DispatchModeName(mode)},
                   {"dtype", DispatchDtypeName(dtype)},
                   {"transport", LinkPathName(path)}},
                  text);
        }
      }
    }
  }
}

void AddExpertTimes(const ExpertTimes& times, MetricsText* text) {
  AddRequestTimes(times, text);
  AddByMode(
      "moe_dispatch_duration_seconds", "From a request's arrival to the start of its batch.",
      [&](auto... at) -> const Histogram& { return times.Of(at...).dispatch; }, text);
  AddByMode(
      "moe_expert_compute_duration_seconds", "Of a batch, from its start until its end is seen.",
      [&](auto... at) -> const Histogram& { return times.Of(at...).compute; }, text);
  AddByMode(
      "moe_combine_duration_seconds", "From a batch's end until all its results are sent.",
      [&](auto... at) -> const Histogram& { return times.Of(at...).combine; }, text);
  AddByMode(
      "moe_batch_rows", "Rows of a batch.",
      [&](auto... at) -> const Histogram& { return times.Of(at...).rows; }, text);
}

void AddLoads(const LoadTimes& loads, MetricsText* text) {
  text->Begin(kCounter, "moe_weight_load_bytes_total", "Expert weights that were loaded.")
      .Add(loads.bytes.load(std::memory_order_relaxed));
  text->Begin(kHistogram, "moe_weight_load_duration_seconds",
              "Of staging an epoch, until it is ready or has failed.");
  AddSeen(loads.loaded, {{"result", "ok"}}, text);
  AddSeen(loads.failed, {{"result", "error"}}, text);
}

void AddGateway(const GatewayCounts& counts, MetricsText* text) {
  text->Begin(kCounter, "moe_gateway_steps_total", "Steps of this gateway's callers.")
      .Add(counts.results.load(std::memory_order_relaxed), {{"answer", "result"}})
      .Add(counts.errors.load(std::memory_order_relaxed), {{"answer", "error"}});
  text->Begin(kCounter, "moe_gateway_tokens_total", "Tokens of the steps that have a result.")
      .Add(counts.tokens.load(std::memory_order_relaxed));
  AddByMode(
      "moe_gateway_step_duration_seconds", "From the arrival of a caller's step to its result.",
      [&](auto... at) -> const Histogram& { return counts.StepOf(at...); }, text);
}

void AddGroups(const GroupCounts& counts, std::size_t open, MetricsText* text) {
  text->Begin(kGauge, "moe_groups_open", "Groups of sessions in lockstep.")
      .Add(static_cast<double>(open));
  text->Begin(kCounter, "moe_group_steps_total", "Steps of groups that have ended here.")
      .Add(counts.steps.load(std::memory_order_relaxed), {{"result", "ok"}})
      .Add(counts.failed.load(std::memory_order_relaxed), {{"result", "error"}});
  text->Begin(kHistogram, "moe_group_step_duration_seconds",
              "Of this worker's part of a group's step.");
  AddSeen(counts.step, {}, text);
  text->Begin(kHistogram, "moe_peer_wait_duration_seconds",
              "The part of a group's step in which the rows of other ranks are waited for.");
  AddSeen(counts.exchange.peer_wait, {}, text);
}

void AddTraces(const TraceCounts& counts, MetricsText* text) {
  text->Begin(kCounter, "moe_trace_spans_total", "Spans of traced steps, by what became of them.")
      .Add(counts.exported, {{"result", "exported"}})
      .Add(counts.failed, {{"result", "failed"}});
  text->Begin(kCounter, "moe_trace_records_dropped_total",
              "Parts of traced steps that were written faster than they could be exported.")
      .Add(counts.dropped);
}

}  // namespace

WorkerFacts CollectWorkerFacts(const Health& health, std::int64_t weight_bytes_max,
                               const WorkerServer& server, ExpertService* experts,
                               const GroupService* groups) {
  WorkerFacts facts{.health = health,
                    .heartbeat = experts->MakeHeartbeat(),
                    .resident = experts->Resident(),
                    .weight_bytes = experts->WeightBytes(),
                    .weight_bytes_max = weight_bytes_max,
                    .gateway = server.gateway_use(),
                    .times = &experts->times(),
                    .loads = &experts->load_times(),
                    .gateway_counts = &server.gateway_counts(),
                    .view = {}};
  if (groups != nullptr) {
    facts.groups_open = groups->groups_open();
    facts.groups = &groups->counts();
  }
  absl::StatusOr<ExpertServiceView> view = experts->View(kScrapeWait);
  if (view.ok()) facts.view = *std::move(view);
  return facts;
}

MetricsText WorkerMetrics(const WorkerFacts& facts) {
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
  if (facts.times != nullptr) AddExpertTimes(*facts.times, &text);
  if (facts.loads != nullptr) AddLoads(*facts.loads, &text);
  AddTraces(facts.traces, &text);
  if (facts.gateway_counts != nullptr) AddGateway(*facts.gateway_counts, &text);
  if (facts.groups != nullptr) AddGroups(*facts.groups, facts.groups_open, &text);
  text.Begin(kGauge, "moe_data_thread_answered",
             "1 if the data thread answered this scrape; 0: its counters are missing.")
      .Add(facts.view ? 1.0 : 0.0);
  if (facts.view) {
    AddTransport(facts.view->transport, &text);
    AddExperts(*facts.view, facts.groups, &text);
  }
  return text;
}

}  // namespace switchyard
