#include "ctl/metrics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "core/base/status_macros.h"
#include "ctl/json.h"
#include "ctl/output/times.h"
#include "ctl/worker_client.h"
#include "report/text_table.h"

namespace switchyard::ctl {
namespace {

constexpr absl::string_view kCoordinator = "coordinator";

// An operator looks at these first.
constexpr std::array<absl::string_view, 24> kImportant{
    "moe_ready",
    "moe_workers",
    "moe_sessions_open",
    "moe_plan_epoch",
    "moe_plan_transitions_total",
    "moe_plan_apply_duration_seconds",
    "moe_weight_bytes",
    "moe_weight_load_duration_seconds",
    "moe_attachments_open",
    "moe_gateway_sessions_open",
    "moe_groups_open",
    "moe_requests_total",
    "moe_rows_total",
    "moe_nan_rows_total",
    "moe_frames_dropped_total",
    "moe_gateway_steps_total",
    "moe_gateway_step_duration_seconds",
    "moe_group_steps_total",
    "moe_group_step_duration_seconds",
    "moe_peer_wait_duration_seconds",
    "moe_request_duration_seconds",
    "moe_dispatch_duration_seconds",
    "moe_expert_compute_duration_seconds",
    "moe_batch_rows",
};

std::string NumberText(double value) {
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return std::abs(value) < 1e15 && std::trunc(value) == value ? absl::StrFormat("%.0f", value)
                                                              : absl::StrFormat("%.4g", value);
}

std::string QuantileText(const v1::MetricHistogram& histogram, bool is_time, double quantile) {
  const std::span<const double> bounds(histogram.bounds().data(),
                                       static_cast<std::size_t>(histogram.bounds_size()));
  const std::span<const std::uint64_t> buckets(histogram.buckets().data(),
                                               static_cast<std::size_t>(histogram.buckets_size()));
  return ctl::QuantileText(bounds, buckets, is_time, quantile);
}

void AddSample(const std::string& source, const v1::Metric& metric, const v1::MetricSample& sample,
               TextTable* table) {
  std::string labels;
  for (const v1::MetricLabel& label : sample.labels()) {
    absl::StrAppend(&labels, labels.empty() ? "" : ",", label.name(), "=", label.value());
  }
  std::vector<std::string> cells{source, metric.name(), labels};
  if (sample.has_histogram()) {
    const v1::MetricHistogram& histogram = sample.histogram();
    const bool is_time = absl::EndsWith(metric.name(), "_seconds");
    const double mean = histogram.sum() / static_cast<double>(histogram.count());
    cells.push_back(absl::StrCat(histogram.count()));
    cells.push_back(histogram.count() == 0 ? ""
                    : is_time              ? SecondsText(mean)
                                           : absl::StrFormat("%.1f", mean));
    cells.push_back(QuantileText(histogram, is_time, 0.5));
    cells.push_back(QuantileText(histogram, is_time, 0.99));
  } else {
    cells.push_back(NumberText(sample.value()));
  }
  table->Add(std::move(cells));
}

bool IsShown(const v1::Metric& metric, const v1::MetricSample& sample, bool all) {
  if (all) return true;
  if (std::find(kImportant.begin(), kImportant.end(), metric.name()) == kImportant.end()) {
    return false;
  }
  // A program that is not ready is no detail.
  return sample.has_histogram() ? sample.histogram().count() > 0
                                : sample.value() != 0 || metric.name() == "moe_ready";
}

Json ToJson(const std::vector<ProgramMetrics>& programs) {
  Json list = Json::array();
  for (const ProgramMetrics& program : programs) {
    Json metrics = Json::array();
    for (const v1::Metric& metric : program.metrics) metrics.push_back(ctl::ToJson(metric));
    list.push_back({{"source", program.source},
                    {"problem", program.problem},
                    {"metrics", std::move(metrics)}});
  }
  return {{"programs", std::move(list)}};
}

absl::StatusOr<std::vector<ProgramMetrics>> Collect(const Run& run) {
  std::vector<ProgramMetrics> programs;
  if (run.line.name.empty() || run.line.name == kCoordinator) {
    SY_ASSIGN_OR_RETURN(v1::GetMetricsResponse own, run.coordinator.Metrics());
    programs.push_back({std::string(kCoordinator), "", std::move(*own.mutable_metrics())});
    if (!run.line.name.empty()) return programs;
  }
  SY_ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, WantedWorkers(run));
  v1::GetStatusRequest request;
  request.set_metrics(true);
  std::vector<WorkerSample> samples = AskWorkers(run, workers, request);
  for (std::size_t i = 0; i < workers.size(); ++i) {
    programs.push_back({workers[i].id(), std::string(samples[i].status.message()),
                        std::move(*samples[i].answer.mutable_metrics())});
  }
  return programs;
}

}  // namespace

std::string MetricsTable(const std::vector<ProgramMetrics>& programs, bool all) {
  TextTable table({"SOURCE", "METRIC", "LABELS", "VALUE", "MEAN", "P50", "P99"});
  std::string problems;
  for (const ProgramMetrics& program : programs) {
    if (!program.problem.empty()) {
      absl::StrAppend(&problems, program.source, ": ", program.problem, "\n");
    }
    for (const v1::Metric& metric : program.metrics) {
      for (const v1::MetricSample& sample : metric.samples()) {
        if (IsShown(metric, sample, all)) AddSample(program.source, metric, sample, &table);
      }
    }
  }
  return absl::StrCat(table.rows() == 0 ? "There are no metrics.\n" : table.Print(), problems);
}

absl::Status GetMetrics(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const std::vector<ProgramMetrics> programs, Collect(run));
  *out += run.json() ? Print(ToJson(programs)) : MetricsTable(programs, !run.line.name.empty());
  return absl::OkStatus();
}

}  // namespace switchyard::ctl
