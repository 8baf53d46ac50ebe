// Sessions and the watches of their plans.
//
// A session lives while it is watched, and for session_linger without a watch, so that a source can
// connect again. Sessions are not stored: after a restart the coordinator learns of one by its
// watch, if the store or a worker still has the plan that the source names.
//
// Where callers are known (mutual TLS), a session is its opener's. To anybody else it does not
// exist: kNotFound (UNKNOWN_SESSION), with the text of an id that was never given out. Where they
// have tenants, a deployment whose model a tenant may not use does not exist to it either, and what
// its callers open is bounded together. Not thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/deployment_controller.h"
#include "coordinator/events.h"
#include "coordinator/outbox.h"
#include "coordinator/session_request.h"
#include "coordinator/sessions/caller_use.h"
#include "coordinator/sessions/group_table.h"
#include "coordinator/spec/options.h"
#include "coordinator/view.h"
#include "core/base/clock.h"
#include "core/grant_signature.h"
#include "core/ids.h"
#include "core/rng.h"
#include "core/session_messages.h"

namespace switchyard {

class SessionTable {
 public:
  // All outlive it. `now`: when this coordinator started.
  SessionTable(const CoordinatorOptions* options, Rng* rng, Outbox* out, TimePoint now)
      : options_(options), rng_(rng), out_(out), started_at_(now) {}

  // Who opens a session.
  struct Opener {
    absl::string_view named;         // in the grant; empty: nobody is
    const Tenant* tenant = nullptr;  // of whoever it is for; null: it has none
  };
  // `session` is complete; `serving` serves; `key` is the deployment's and signs the grant. Errors:
  // kResourceExhausted (TOO_MANY_SESSIONS), also for the tenant; those of GroupTable::Claim.
  absl::StatusOr<SessionGrant> Open(const CompleteSession& session, const Opener& opener,
                                    const PlanUpdate& serving, const GrantKey& key, TimePoint now);
  // Why the group that a request with kAuto names cannot be as far as its other sources are
  // concerned: one of them makes its steps over p2p, and would be waited for in vain. Empty: none
  // does. Linear in the sessions.
  [[nodiscard]] std::string ObstacleOf(const std::string& deployment,
                                       const OpenSessionRequest& request, TimePoint now) const;
  // Ends its watch with OK. An unknown session is ignored where callers are not known, so that
  // closing twice is harmless.
  absl::Status Close(SessionId session, absl::string_view caller);
  // Ends the sessions of the deployment, their watches with `why`.
  void End(const std::string& deployment, const absl::Status& why);

  // `deployment` is the one that `start` names; null: it does not exist. A watch that is refused
  // is closed at once: kNotFound (UNKNOWN_MODEL), kInvalidArgument (BAD_REQUEST) for another
  // deployment or phase than the session's, kFailedPrecondition (STALE_EPOCH) when neither the
  // session nor its plan is known, kResourceExhausted (TOO_MANY_SESSIONS). Where callers are known,
  // one that this coordinator did not open has to be proven by its grant; in the first
  // session_linger, a source of a former release, which proves nothing, is believed, and a session
  // that was open before is kept whatever its tenant's limits are now. A newer watch
  // of the session replaces the older one. An epoch that the source has not seen is sent at once.
  void Watch(const WatchStarted& start, const DeploymentController* deployment, TimePoint now);
  // The stream of the watch has ended. Ignored for a watch that was closed.
  void StopWatch(WatchId watch, TimePoint now);
  // Sends `update` to every watch of its deployment that has an older epoch, and once more to those
  // of sessions that may be on another model (former_kept).
  void Announce(const std::shared_ptr<const PlanUpdate>& update);
  // Forgets sessions that have been without a watch for session_linger.
  void Expire(TimePoint now);

  // All sessions, ascending by deployment, then by age.
  [[nodiscard]] std::vector<SessionView> View(TimePoint now) const;
  // Open sessions of the deployment.
  [[nodiscard]] std::int32_t CountOf(const std::string& deployment) const;
  // Those of them that were opened on an epoch before `epoch`.
  [[nodiscard]] std::int32_t CountBefore(const std::string& deployment, Epoch epoch) const;

 private:
  // The coordinator keeps only what it needs to announce epochs; the grant is the source's.
  struct Session {
    std::string deployment;
    Phase phase = Phase::kMixed;
    // The one on which it was opened, as far as this coordinator knows.
    Epoch opened;
    // The newest one that was sent to its source.
    Epoch epoch;
    WatchId watch;  // 0: none
    TimePoint unwatched_since;
    // These are not known of a session of an earlier coordinator.
    std::optional<DispatchMode> mode = {};
    std::optional<DeviceKind> source = {};
    std::string peer = {};  // of its watch
    TimePoint known_since = {};
    std::optional<BindingChoice> binding = {};
    std::string binding_reason = {};
    GroupRequest group = {};    // that it is in, or might have been with kAuto
    std::int32_t ranks = 0;     // of its group in the epoch, if collective
    std::string owner = {};     // whose it is; empty: of whoever knows its id
    std::string user = {};      // who it is for, if it is known
    bool proven = false;        // it is; else its first watch said so
    CallerUse::Share use = {};  // of whoever it is for
  };

  [[nodiscard]] absl::Status CheckRoom() const;
  // Reports, at debug, what became of a session.
  void SayOf(SessionId id, const Session& session, absl::string_view what);
  static void AddBinding(const Session& session, SessionView* view);
  // The session of `request`: known, or added because its plan is known.
  absl::StatusOr<Session*> Find(const WatchStarted& start, const DeploymentController* deployment,
                                TimePoint now);
  absl::StatusOr<Session*> Adopt(const WatchStarted& start, const DeploymentController& deployment,
                                 TimePoint now);
  // Whether the caller of `start` may learn that the deployment exists: it may use its model, or
  // has a session of it.
  [[nodiscard]] bool MayKnow(const WatchStarted& start,
                             const DeploymentController& deployment) const;

  const CoordinatorOptions* options_;
  Rng* rng_;
  Outbox* out_;
  const TimePoint started_at_;
  CallerUse use_;  // before the sessions, which have shares of it
  std::map<SessionId, Session> sessions_;
  std::map<WatchId, SessionId> watches_;
  // In the first session_linger sources show sessions of a former coordinator. These are not such.
  bool may_return_ = true;
  std::set<SessionId> closed_;  // at most max_sessions
  GroupTable groups_;
};

}  // namespace switchyard
