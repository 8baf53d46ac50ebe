#include "client/source_moe_session.h"

#include <utility>

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

MoeSession::Ticket Pack(const StepTicket& ticket) {
  return (static_cast<std::uint64_t>(ticket.generation) << 32) | ticket.slot;
}

StepTicket Unpack(MoeSession::Ticket ticket) {
  return {static_cast<std::uint32_t>(ticket), static_cast<std::uint32_t>(ticket >> 32)};
}

class SourceMoeSession final : public MoeSession {
 public:
  SourceMoeSession(Source* source, Source::SessionRef session, SessionChannel* channel,
                   Duration timeout)
      : source_(source), session_(session), channel_(channel), timeout_(timeout) {}
  ~SourceMoeSession() override { Close().IgnoreError(); }  // A destructor has nobody to tell.

  absl::StatusOr<Ticket> Submit(const StepRequest& request) override {
    SY_ASSIGN_OR_RETURN(const StepTicket ticket, source_->Dispatch(session_, request));
    return Pack(ticket);
  }
  absl::StatusOr<bool> Done(Ticket ticket) override {
    return source_->Done(session_, Unpack(ticket));
  }
  absl::Status Wait(Ticket ticket) override { return source_->Combine(session_, Unpack(ticket)); }
  absl::StatusOr<SessionGrant> Grant() override { return source_->Grant(session_); }
  absl::StatusOr<SessionReport> Report(Duration timeout) override {
    SessionReport report;
    SY_ASSIGN_OR_RETURN(report.grant, source_->Grant(session_));
    report.grant.cookie = {};
    SY_ASSIGN_OR_RETURN(report.status, source_->Status(session_));
    SY_ASSIGN_OR_RETURN(report.workers,
                        AskWorkers(*channel_, report.grant.plan, report.grant.session, timeout));
    report.path = "p2p";
    return report;
  }
  absl::Status Close() override {
    const absl::Status closed = source_->Close(session_, timeout_);
    // Closing twice is no error.
    return closed.code() == absl::StatusCode::kNotFound ? absl::OkStatus() : closed;
  }

 private:
  Source* source_;
  Source::SessionRef session_;
  SessionChannel* channel_;
  Duration timeout_;
};

}  // namespace

std::unique_ptr<MoeSession> MakeSourceMoeSession(Source* source, Source::SessionRef session,
                                                 SessionChannel* channel, Duration timeout) {
  return std::make_unique<SourceMoeSession>(source, session, channel, timeout);
}

absl::StatusOr<std::vector<SessionCounters>> AskWorkers(SessionChannel& channel, const Plan& plan,
                                                        SessionId session, Duration timeout) {
  std::vector<SessionCounters> all;
  for (const PlanWorker& worker : plan.workers) {
    absl::StatusOr<SessionCounters> counters =
        channel.GetCounters(worker.endpoint, session, timeout);
    // A gateway comes to know a session by its first rows.
    if (ReasonOf(counters.status()) == Reason::kUnknownSession) {
      counters = SessionCounters{.worker_id = worker.id, .attachments = {}};
    }
    if (!counters.ok()) return Annotate(counters.status(), "counters of worker " + worker.id);
    all.push_back(*std::move(counters));
  }
  return all;
}

}  // namespace switchyard
