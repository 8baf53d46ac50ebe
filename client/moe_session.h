// A session as an engine holds it: submit a layer's batch, wait for y. The C++ counterpart of
// switchyard.h, over whichever binding the session was granted. Thread-safe.
//
//   sy_submit -> MoeSession -> Source -> P2pRunner -> StepEngine -> the first encoded byte
//
// Those four classes are the whole way; nothing in between may only pass calls on.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/session_messages.h"
#include "core/tracing/trace_sink.h"
#include "worker/source/session_channel.h"
#include "worker/source/source.h"
#include "worker/source/step_request.h"

namespace switchyard {

// The session as both ends account for it.
struct SessionReport {
  SessionGrant grant;                    // with the plan that steps run on now; no secrets
  RunnerStatus status;                   // this end; its grant is left out
  std::vector<SessionCounters> workers;  // the workers' end, by ordinal of the plan
  // For each of `workers`, why it could not be asked; its counters are then empty.
  std::vector<absl::Status> asked;
  // They count for all sessions of the client. Not set: it traces nothing, as through a gateway.
  std::optional<TraceCounts> traces = {};
};

// Whether the same step can succeed later in the same session: a worker was lost or late, its epoch
// is being replaced, or too many steps are in flight. Not for a session that has ended.
bool MayRetry(const absl::Status& error);

class MoeSession {
 public:
  using Ticket = StepTicket;  // names a submitted step; good for one Wait

  // Takes over `session`, and holds `source` for it. `channel` and `traces`, which may be null,
  // outlive this object; `timeout` bounds its close.
  MoeSession(std::shared_ptr<Source> source, Source::SessionRef session, SessionChannel* channel,
             Duration timeout, const TraceSink* traces = nullptr)
      : source_(std::move(source)),
        session_(session),
        channel_(channel),
        timeout_(timeout),
        traces_(traces) {}
  // Closes the session.
  ~MoeSession();
  MoeSession(const MoeSession&) = delete;
  MoeSession& operator=(const MoeSession&) = delete;

  // The request's memory stays the caller's and unchanged until Wait has returned. Errors as
  // StepRunner::Submit and Source::Submit.
  absl::StatusOr<Ticket> Submit(const StepRequest& request) {
    return source_->Submit(session_, request);
  }
  // Whether Wait would return at once. kFailedPrecondition (STAGE_ORDER) for a used ticket.
  absl::StatusOr<bool> IsDone(Ticket ticket) { return source_->IsDone(session_, ticket); }
  // Blocks until the step has ended, which its deadline bounds: y is complete, or the error says
  // why not.
  absl::Status Wait(Ticket ticket) { return source_->Wait(session_, ticket); }

  // As Source::UseGraphs.
  absl::Status UseGraphs(absl::FunctionRef<absl::Status(StepGraphs&)> work) {
    return source_->UseGraphs(session_, work);
  }

  // Submit and Wait in one. After an error that another attempt can mend (MayRetry) tries again
  // until `retry_for` has passed, with pauses that grow from 20 ms to half a second; zero: one
  // attempt. Repeating is safe: a step reads its inputs and writes y, and nothing else. Returns the
  // last attempt's error. `attempts`, unless null, gets their number.
  absl::Status Run(const StepRequest& request, Duration retry_for, int* attempts = nullptr);

  // The grant, with the plan that steps run on now; without cookie and signature.
  absl::StatusOr<SessionGrant> Grant();
  // The id of the worker through which steps go now; empty in p2p.
  absl::StatusOr<std::string> GatewayWorker();
  // Asks all workers of the plan, several at a time, and blocks at most `timeout` in all. A worker
  // that does not know the session has counted nothing. Errors: those of Grant, none of a worker.
  absl::StatusOr<SessionReport> Report(Duration timeout);
  // Idempotent. Steps in flight fail (SESSION_CLOSED).
  absl::Status Close();

 private:
  absl::StatusOr<SessionCounters> Ask(const PlanWorker& worker, SessionId session, TimePoint until);

  const std::shared_ptr<Source> source_;
  const Source::SessionRef session_;
  SessionChannel* const channel_;
  const Duration timeout_;
  const TraceSink* const traces_;
};

}  // namespace switchyard
