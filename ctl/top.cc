#include "ctl/top.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "ctl/errors.h"
#include "ctl/waiting.h"
#include "report/text_table.h"
#include "services/convert/enum_words.h"
#include "services/grpc/grpc_server.h"
#include "services/grpc/grpc_status.h"
#include "services/grpc/peer_error.h"
#include "switchyard/v1/expert.grpc.pb.h"

namespace switchyard::ctl {
namespace {

// Asked at the same time; a pool of any size is asked in turns.
constexpr std::size_t kAskedAtOnce = 16;
// A worker answers within milliseconds; one that is out of reach must not hold up the others.
constexpr Duration kAnswerMax = std::chrono::seconds(2);

TopSample Ask(const v1::Worker& worker) {
  const auto stub =
      v1::ExpertService::NewStub(MakeGrpcChannel(worker.endpoint(), kControlMessageBytesMax));
  grpc::ClientContext context;
  context.set_deadline(GrpcDeadline(kAnswerMax));
  TopSample sample;
  sample.status =
      AsPeerError(StatusFromGrpc(stub->GetStatus(&context, v1::GetStatusRequest(), &sample.answer)),
                  {"worker", worker.endpoint(), Reason::kWorkerLost});
  sample.at = std::chrono::steady_clock::now();
  return sample;
}

std::vector<TopSample> AskAll(const std::vector<v1::Worker>& workers) {
  std::vector<TopSample> samples(workers.size());
  for (std::size_t first = 0; first < workers.size(); first += kAskedAtOnce) {
    const std::size_t end = std::min(first + kAskedAtOnce, workers.size());
    std::vector<std::thread> threads;
    for (std::size_t i = first; i < end; ++i) {
      threads.emplace_back([&, i] { samples[i] = Ask(workers[i]); });
    }
    for (std::thread& thread : threads) thread.join();
  }
  return samples;
}

absl::StatusOr<std::vector<v1::Worker>> WantedWorkers(const Run& run) {
  SY_ASSIGN_OR_RETURN(const auto list, run.coordinator.Workers());
  std::vector<v1::Worker> wanted;
  std::vector<std::string> known;
  for (const v1::Worker& worker : list.workers()) {
    known.push_back(worker.id());
    if (run.line.name.empty() || worker.id() == run.line.name) wanted.push_back(worker);
  }
  if (wanted.empty() && !run.line.name.empty()) return NoSuch("worker", run.line.name, known);
  return wanted;
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
    }
    list.push_back(std::move(one));
  }
  return {{"workers", std::move(list)}};
}

absl::Status Measure(const Run& run, std::string* out) {
  SY_ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, WantedWorkers(run));
  const std::vector<TopSample> before = AskAll(workers);
  Pause();
  Pause();
  const std::vector<TopSample> after = AskAll(workers);
  std::vector<TopRow> rows;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    rows.push_back(RowOf(workers[i], before[i], after[i]));
  }
  *out += run.json() ? Print(ToJson(rows)) : TopTable(rows);
  return absl::OkStatus();
}

}  // namespace

TopRow RowOf(const v1::Worker& worker, const TopSample& before, const TopSample& after) {
  TopRow row;
  row.id = worker.id();
  row.state = EnumWord(worker.state());
  const absl::Status& failed = before.status.ok() ? after.status : before.status;
  if (!failed.ok()) {
    row.problem = std::string(failed.message());
    return row;
  }
  if (before.answer.incarnation() != after.answer.incarnation()) {
    row.problem = "its process has restarted";
    return row;
  }
  const v1::ExpertStats& from = before.answer.experts();
  const v1::ExpertStats& to = after.answer.experts();
  const double seconds = std::chrono::duration<double>(after.at - before.at).count();
  const auto batches = static_cast<double>(to.batches() - from.batches());
  const auto rows = static_cast<double>(to.rows() - from.rows());
  row.known = seconds > 0;
  if (!row.known) return row;
  row.rows_per_second = rows / seconds;
  row.requests_per_second = static_cast<double>(to.requests() - from.requests()) / seconds;
  row.rows_per_batch = batches > 0 ? rows / batches : 0;
  row.errors = to.refused() - from.refused();
  row.attachments = to.attachments();
  return row;
}

std::string TopTable(const std::vector<TopRow>& rows) {
  if (rows.empty()) return "There are no workers.\n";
  TextTable table({"WORKER", "STATE", "ROWS/S", "REQUESTS/S", "ROWS/BATCH", "ERRORS", "ATTACHMENTS",
                   "PROBLEM"});
  for (const TopRow& row : rows) {
    const auto number = [&row](double value) {
      return row.known ? absl::StrFormat("%.0f", value) : "";
    };
    table.Add({row.id, row.state, number(row.rows_per_second), number(row.requests_per_second),
               number(row.rows_per_batch), number(static_cast<double>(row.errors)),
               number(static_cast<double>(row.attachments)), row.problem});
  }
  return table.Print();
}

absl::Status Top(const Run& run, std::string* out) {
  if (!run.line.watch || !run.screen.viewer.live) return Measure(run, out);
  for (bool first = true;; first = false) {
    std::string text;
    const absl::Status status = Measure(run, &text);
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
