#include "client/moe_session.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Between two attempts of a step. A lost worker's experts serve elsewhere after about half a
// second.
constexpr Duration kRetryPauseMin = std::chrono::milliseconds(20);
constexpr Duration kRetryPauseMax = std::chrono::milliseconds(500);
// Workers that Report asks at the same time, each on a thread.
constexpr std::size_t kAskedAtOnce = 16;

}  // namespace

// A failure to close is lost here: a destructor cannot report it, and the coordinator forgets
// sessions by itself.
MoeSession::~MoeSession() { Close().IgnoreError(); }

bool MayRetry(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kUnavailable:
      return ReasonOf(error) != Reason::kSessionClosed;
    case absl::StatusCode::kAborted:
      return true;
    case absl::StatusCode::kResourceExhausted:
      return ReasonOf(error) == Reason::kNoCredits;
    default:
      return false;
  }
}

absl::Status MoeSession::Run(const StepRequest& request, Duration retry_for, int* attempts) {
  const SteadyClock clock;
  const TimePoint until = clock.Now() + retry_for;
  Duration pause = kRetryPauseMin;
  if (attempts != nullptr) *attempts = 0;
  while (true) {
    if (attempts != nullptr) ++*attempts;
    const absl::StatusOr<Ticket> ticket = Submit(request);
    absl::Status status = ticket.ok() ? Wait(*ticket) : ticket.status();
    if (status.ok() || !MayRetry(status) || clock.Now() + pause > until) return status;
    // No event says that the cause is gone: a plan may come, or a late worker answer again.
    absl::SleepFor(absl::FromChrono(pause));
    pause = std::min(pause * 2, kRetryPauseMax);
  }
}

absl::StatusOr<SessionGrant> MoeSession::Grant() {
  SY_ASSIGN_OR_RETURN(RunnerStatus status, source_->Status(session_));
  // A secret: grants are printed and logged by callers.
  status.grant.cookie = {};
  status.grant.signature = {};
  return std::move(status.grant);
}

absl::StatusOr<std::string> MoeSession::GatewayWorker() {
  SY_ASSIGN_OR_RETURN(RunnerStatus status, source_->Status(session_));
  return std::move(status.gateway_worker);
}

absl::StatusOr<SessionCounters> MoeSession::Ask(const PlanWorker& worker, SessionId session,
                                                TimePoint until) {
  const Duration left = until - SteadyClock().Now();
  if (left <= Duration::zero()) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                     absl::StrCat("worker ", worker.id, " was not asked: others took all the time"),
                     {{"worker", worker.id}});
  }
  absl::StatusOr<SessionCounters> counters = channel_->GetCounters(worker.endpoint, session, left);
  if (counters.ok()) return counters;
  // A gateway learns of a session by its first rows.
  if (ReasonOf(counters.status()) == Reason::kUnknownSession) {
    return SessionCounters{.worker_id = worker.id, .attachments = {}};
  }
  return Annotate(counters.status(), "counters of worker " + worker.id);
}

absl::StatusOr<SessionReport> MoeSession::Report(Duration timeout) {
  const TimePoint until = SteadyClock().Now() + timeout;
  SessionReport report;
  SY_ASSIGN_OR_RETURN(report.status, source_->Status(session_));
  report.grant = std::exchange(report.status.grant, {});
  report.grant.cookie = {};
  report.grant.signature = {};
  if (traces_ != nullptr) report.traces = traces_->counts();
  const std::vector<PlanWorker>& workers = report.grant.plan.workers;
  report.workers.resize(workers.size());
  report.asked.resize(workers.size());
  std::atomic<std::size_t> next{0};
  const auto ask_in_turn = [&] {
    for (std::size_t w = next++; w < workers.size(); w = next++) {
      report.workers[w].worker_id = workers[w].id;
      auto counters = Ask(workers[w], report.grant.session, until);
      report.asked[w] = counters.status();
      if (counters.ok()) report.workers[w] = *std::move(counters);
    }
  };
  // One that does not answer must not keep the others from being asked.
  std::vector<std::thread> others(std::clamp<std::size_t>(workers.size(), 1, kAskedAtOnce) - 1);
  for (std::thread& other : others) other = std::thread(ask_in_turn);
  ask_in_turn();
  for (std::thread& other : others) other.join();
  return report;
}

absl::Status MoeSession::Close() {
  const absl::Status closed = source_->Close(session_, timeout_);
  // Closing twice is no error.
  return ReasonOf(closed) == Reason::kSessionClosed ? absl::OkStatus() : closed;
}

}  // namespace switchyard
