// Sessions and the watches of their plans.
//
// A session lives as long as its watch, or as the time to dial it again. Sessions are not durable:
// a coordinator that came back learns of one by its watch, when the store still holds the plan that
// the source names. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/deployment_controller.h"
#include "coordinator/events.h"
#include "coordinator/options.h"
#include "core/base/clock.h"
#include "core/ids.h"
#include "core/rng.h"
#include "core/session_messages.h"

namespace switchyard {

class SessionTable {
 public:
  // All outlive it.
  SessionTable(const CoordinatorOptions* options, Rng* rng, Outbox* out)
      : options_(options), rng_(rng), out_(out) {}

  // `order` is complete, `serving` serves. Errors: kResourceExhausted (TOO_MANY_SESSIONS).
  absl::StatusOr<SessionGrant> Open(const OpenSessionRequest& order, const PlanUpdate& serving,
                                    TimePoint now);
  // Ends its watch with OK. Nothing happens for a session that is not known.
  void Close(SessionId session);

  // `deployment` is the one that the order names; null: there is none. What is refused is closed
  // at once: kNotFound (UNKNOWN_MODEL), kInvalidArgument (BAD_REQUEST) for another deployment or
  // phase than the session's, kFailedPrecondition (STALE_EPOCH) for a session and a plan that are
  // both unknown, kResourceExhausted (TOO_MANY_SESSIONS). A newer watch replaces the session's
  // older one.
  void Watch(WatchId watch, const WatchRequest& order, const DeploymentController* deployment,
             TimePoint now);
  void StopWatch(WatchId watch, TimePoint now);
  // To every watch of that deployment that has an older epoch.
  void Announce(const std::shared_ptr<const PlanUpdate>& news);
  // Forgets sessions that nobody watches.
  void Expire(TimePoint now);

  [[nodiscard]] std::int32_t CountOf(const std::string& deployment) const;

 private:
  struct Session {
    std::string deployment;
    Phase phase = Phase::kMixed;
    Epoch epoch;    // that its source was told of last
    WatchId watch;  // none: nobody watches
    TimePoint unwatched_since;
  };

  [[nodiscard]] absl::Status CheckRoom() const;
  // The order's session: known, or known from now on by its plan.
  absl::StatusOr<Session*> Find(const WatchRequest& order, const DeploymentController* deployment);

  const CoordinatorOptions* options_;
  Rng* rng_;
  Outbox* out_;
  std::map<SessionId, Session> sessions_;
  std::map<WatchId, SessionId> watches_;
};

}  // namespace switchyard
