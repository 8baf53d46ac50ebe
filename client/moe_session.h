// A session as an engine holds it: submit a layer's batch, wait for y. The C++ face of
// switchyard.h.
//
// Two implementations: steps over the p2p binding from this process (source_session), and steps as
// gRPC bytes through a gateway worker (gateway_session). Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/session_messages.h"
#include "worker/source/p2p/session.h"
#include "worker/source/p2p/step.h"
#include "worker/source/session_channel.h"

namespace switchyard {

// The session as both ends account for it.
struct SessionReport {
  SessionGrant grant;                    // with the plan that is bound now; no cookie
  SourceSessionStatus status;            // this end
  std::vector<SessionCounters> workers;  // the workers' end, by ordinal of the plan
  std::string path;                      // "p2p" or "gateway"
};

class MoeSession {
 public:
  // Names a submitted step; good for one Wait.
  using Ticket = std::uint64_t;

  // Closes the session.
  virtual ~MoeSession() = default;

  // The request's memory stays the caller's and unchanged until Wait has returned. Errors as
  // StepEngine::Submit.
  virtual absl::StatusOr<Ticket> Submit(const StepRequest& request) = 0;
  // Whether Wait would return at once. kFailedPrecondition (STAGE_ORDER) for a used ticket.
  virtual absl::StatusOr<bool> Done(Ticket ticket) = 0;
  // The step's end: y is complete, or an error says why not. Bounded by the step's deadline.
  virtual absl::Status Wait(Ticket ticket) = 0;
  // What was granted, with the plan that is bound now.
  virtual absl::StatusOr<SessionGrant> Grant() = 0;
  // Asks every worker of the plan; blocks at most `timeout` for each.
  virtual absl::StatusOr<SessionReport> Report(Duration timeout) = 0;
  // Idempotent. Steps in flight fail (SESSION_CLOSED).
  virtual absl::Status Close() = 0;
};

}  // namespace switchyard
