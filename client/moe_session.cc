#include "client/moe_session.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {

// A failure to close is lost here: a destructor cannot report it, and the coordinator forgets
// sessions by itself.
MoeSession::~MoeSession() { Close().IgnoreError(); }

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
