#include "client/moe_session.h"

#include <algorithm>
#include <utility>

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
  return std::move(status.grant);
}

absl::StatusOr<SessionReport> MoeSession::Report(Duration timeout) {
  SessionReport report;
  SY_ASSIGN_OR_RETURN(report.status, source_->Status(session_));
  report.grant = std::exchange(report.status.grant, {});
  report.grant.cookie = {};
  for (const PlanWorker& worker : report.grant.plan.workers) {
    absl::StatusOr<SessionCounters> counters =
        channel_->GetCounters(worker.endpoint, report.grant.session, timeout);
    // A gateway learns of a session by its first rows.
    if (ReasonOf(counters.status()) == Reason::kUnknownSession) {
      counters = SessionCounters{.worker_id = worker.id, .attachments = {}};
    }
    if (!counters.ok()) return Annotate(counters.status(), "counters of worker " + worker.id);
    report.workers.push_back(*std::move(counters));
  }
  return report;
}

absl::Status MoeSession::Close() {
  const absl::Status closed = source_->Close(session_, timeout_);
  // Closing twice is no error.
  return ReasonOf(closed) == Reason::kSessionClosed ? absl::OkStatus() : closed;
}

}  // namespace switchyard
