#include "ctl/top.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "nlohmann/json.hpp"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "ctl/output/times.h"
#include "ctl/waiting.h"
#include "report/text_table.h"
#include "services/convert/decoder.h"
#include "services/convert/enum_words.h"
#include "services/convert/enums.h"
#include "services/convert/work_times.h"

namespace switchyard::ctl {
namespace {

std::string WordOf(WorkKind kind) { return EnumWord(EnumToProto(kind)); }

// Quantiles above the largest bucket are null: JSON has no infinity.
Json ToJson(const HistogramCounts& times) {
  const auto count = static_cast<double>(times.count());
  if (count == 0) return nullptr;
  return {{"mean", static_cast<double>(times.sum) / times.bounds->units_in_one / count},
          {"p50", QuantileOf(times, 0.5)},
          {"p99", QuantileOf(times, 0.99)}};
}

Json ToJson(const std::vector<WorkTimes>& times) {
  Json list = Json::array();
  for (const WorkTimes& one : times) {
    list.push_back({{"work", WordOf(one.kind)},
                    {"steps", one.step.count()},
                    {"step_seconds", ToJson(one.step)},
                    {"queue_seconds", ToJson(one.queue)}});
  }
  return list;
}

Json ToJson(const std::vector<TopRow>& rows) {
  Json list = Json::array();
  for (const TopRow& row : rows) {
    Json one{{"id", row.id}, {"state", row.state}, {"problem", row.problem}};
    if (row.known) {
      one["rows_per_second"] = row.rows_per_second;
      one["requests_per_second"] = row.requests_per_second;
      one["rows_per_batch"] = row.rows_per_batch;
      one["errors"] = row.errors;
      one["attachments"] = row.attachments;
      one["times"] = ToJson(row.times);
    }
    list.push_back(std::move(one));
  }
  return {{"workers", std::move(list)}};
}

absl::Status Measure(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, WantedWorkers(run));
  const std::vector<WorkerSample> before = AskWorkers(run, workers, {});
  Pause();
  Pause();
  const std::vector<WorkerSample> after = AskWorkers(run, workers, {});
  // Again: one may have been drained, or have left, while it was measured.
  SY_ASSIGN_OR_RETURN(const v1::ListWorkersResponse now, run.coordinator.Workers());
  std::vector<TopRow> rows;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    const auto found =
        std::find_if(now.workers().begin(), now.workers().end(),
                     [&](const v1::Worker& worker) { return worker.id() == workers[i].id(); });
    if (found != now.workers().end()) rows.push_back(RowOf(*found, before[i], after[i]));
  }
  *out += run.json() ? Print(ToJson(rows)) : TopTable(rows);
  return absl::OkStatus();
}

// Counts what a worker's experts did, whichever way it came: through attachments, as chunks of the
// gateway's own sessions, as steps of groups.
struct Work {
  std::uint64_t rows = 0;
  std::uint64_t requests = 0;
  std::uint64_t batches = 0;
  std::uint64_t errors = 0;
};

Work WorkOf(const v1::GetStatusResponse& answer) {
  const v1::ExpertStats& experts = answer.experts();
  const v1::GroupStats& groups = answer.groups();
  return {.rows = experts.rows() + experts.direct_rows() + groups.rows(),
          .requests = experts.requests() + experts.direct_chunks() + groups.steps(),
          .batches = experts.batches() + experts.direct_chunks() + groups.steps(),
          .errors = experts.refused() + experts.direct_failed() + groups.errors()};
}

std::vector<WorkTimes> TimesOf(const v1::GetStatusResponse& answer) {
  Decoder at("GetStatusResponse");
  std::vector<WorkTimes> times;
  Decode(at, answer.times(), &times);
  // Times that cannot be read are as those that are not told: the other columns are still right.
  return at.ok() ? times : std::vector<WorkTimes>();
}

}  // namespace

TopRow RowOf(const v1::Worker& worker, const WorkerSample& before, const WorkerSample& after) {
  TopRow row;
  row.id = worker.id();
  row.state = EnumWord(worker.state());
  row.problem = worker.problem();
  const absl::Status& failed = before.status.ok() ? after.status : before.status;
  if (!failed.ok()) {
    row.problem = std::string(failed.message());
    return row;
  }
  if (before.answer.incarnation() != after.answer.incarnation()) {
    row.problem = "its process has restarted";
    return row;
  }
  const Work from = WorkOf(before.answer);
  const Work to = WorkOf(after.answer);
  const double seconds = std::chrono::duration<double>(after.at - before.at).count();
  const auto batches = static_cast<double>(to.batches - from.batches);
  const auto rows = static_cast<double>(to.rows - from.rows);
  row.known = seconds > 0;
  if (!row.known) return row;
  // It has nothing to serve with any more; what was measured is of before that.
  const bool drained = worker.state() == v1::WORKER_STATE_DRAINED;
  if (!drained) {
    row.rows_per_second = rows / seconds;
    row.requests_per_second = static_cast<double>(to.requests - from.requests) / seconds;
    row.rows_per_batch = batches > 0 ? rows / batches : 0;
    row.times = TimesSince(TimesOf(before.answer), TimesOf(after.answer));
  }
  row.errors = to.errors - from.errors;
  row.attachments = after.answer.experts().attachments();
  return row;
}

std::string TopTable(const std::vector<TopRow>& rows) {
  if (rows.empty()) return "There are no workers.\n";
  TextTable table({"WORKER", "STATE", "ROWS/S", "REQUESTS/S", "ROWS/BATCH", "WORK", "STEP P50",
                   "STEP P99", "QUEUE P50", "QUEUE P99", "ERRORS", "ATTACHMENTS", "PROBLEM"});
  for (const TopRow& row : rows) {
    const auto number = [&row](double value) {
      return row.known ? absl::StrFormat("%.0f", value) : "";
    };
    const auto times = [&row](std::size_t i) -> std::vector<std::string> {
      if (i >= row.times.size()) return {"", "", "", "", ""};
      const WorkTimes& of = row.times[i];
      return {WordOf(of.kind), QuantileText(of.step, 0.5), QuantileText(of.step, 0.99),
              QuantileText(of.queue, 0.5), QuantileText(of.queue, 0.99)};
    };
    std::vector<std::string> cells{row.id, row.state, number(row.rows_per_second),
                                   number(row.requests_per_second), number(row.rows_per_batch)};
    for (std::string& cell : times(0)) cells.push_back(std::move(cell));
    cells.push_back(number(static_cast<double>(row.errors)));
    cells.push_back(number(static_cast<double>(row.attachments)));
    cells.push_back(row.problem);
    table.Add(std::move(cells));
    for (std::size_t i = 1; i < row.times.size(); ++i) {
      cells = {row.id, "", "", "", ""};
      for (std::string& cell : times(i)) cells.push_back(std::move(cell));
      table.Add(std::move(cells));
    }
  }
  return table.Print();
}

absl::Status Top(const Run& run, std::string* out) {
  if (!run.line.watch || !run.screen.viewer.live) return Measure(run, out);
  for (bool first = true;; first = false) {
    std::string text;
    absl::Status status = Measure(run, &text);
    // The coordinator may be restarting, and the watch goes on then.
    if (!status.ok() && ReasonOf(status) != Reason::kCoordinatorLost) return status;
    if (!status.ok() && run.screen.viewer.tell) {
      run.screen.viewer.tell(std::string(status.message()));
    }
    const bool apart = !first && !run.json();
    if (status.ok() && !run.screen.viewer.live(apart ? absl::StrCat("\n", text) : text)) {
      return absl::OkStatus();
    }
    if (!status.ok()) Pause();
  }
}

}  // namespace switchyard::ctl
