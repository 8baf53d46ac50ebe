#include "coordinator/session_table.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "coordinator/spec/deployment_errors.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/collective_group.h"

namespace switchyard {
namespace {

// The same for a session of somebody else as for one that does not exist.
absl::Status NoSession(SessionId session) {
  return MakeError(
      absl::StatusCode::kNotFound, Reason::kUnknownSession,
      absl::StrFormat("session %s is not known here; open a new session", ToHex(session)),
      {{"session", ToHex(session)}});
}

// Whether the rest of the grant shows that the session is the caller's.
bool IsProven(const WatchRequest& request, const DeploymentController& deployment) {
  return VerifyGrantOf(request.caller, deployment.serving().KeysWith(deployment.record().grant_key),
                       ClaimsOf(request), request.signature);
}

// A source that has opened a session watches its plan soon after.
constexpr Duration kWatchedAfterMax = std::chrono::seconds(5);

const std::string& UserOf(const OpenSessionRequest& request) {
  return request.on_behalf_of.empty() ? request.caller : request.on_behalf_of;
}

std::int32_t RanksOf(const Plan& plan, std::optional<BindingChoice> binding,
                     const GroupRequest& group) {
  return binding == BindingChoice::kCollective ? GroupRanks(plan, group.sources, group.hosts) : 0;
}

}  // namespace

// A source that never closes its sessions must not exhaust the memory for the others.
absl::Status SessionTable::CheckRoom() const {
  if (sessions_.size() < options_->max_sessions) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                   absl::StrFormat("the limit of %d open sessions is reached; close some, or raise "
                                   "the coordinator's max_sessions",
                                   sessions_.size()),
                   {{"have", absl::StrCat(options_->max_sessions)}});
}

absl::StatusOr<SessionGrant> SessionTable::Open(const CompleteSession& session,
                                                const Opener& opener, const PlanUpdate& serving,
                                                const GrantKey& key, TimePoint now) {
  const OpenSessionRequest& request = session.request;
  const std::string& user = UserOf(request);
  SY_RETURN_IF_ERROR(use_.Check(opener.tenant, user, request.max_tokens));
  SY_RETURN_IF_ERROR(CheckRoom());
  SessionGrant grant;
  grant.session = rng_->NextId<SessionId>();
  // The cookie fences frames: it goes only to the source and, by way of Attach, to its workers, so
  // that a stranger cannot address their rings.
  grant.cookie = Cookie{rng_->Next()};
  grant.request = request;
  grant.request.caller.clear();
  grant.request.on_behalf_of.clear();
  grant.plan = serving.plan;
  grant.hash = serving.hash;
  grant.binding_reason = session.reason;
  if (request.binding == BindingChoice::kCollective) {
    grant.binding = Binding::kCollective;
    SY_ASSIGN_OR_RETURN(grant.group,
                        groups_.Claim(request, opener.tenant, serving.plan.epoch, rng_, now));
  }
  grant.tracing = options_->tracing;
  GrantClaims claims = ClaimsOf(grant);
  claims.opener = opener.named;
  grant.signature = SignGrant(key, claims);
  // The linger time starts now: a source that dies before it watches is forgotten too.
  sessions_[grant.session] = {.deployment = request.deployment,
                              .phase = request.phase,
                              .opened = serving.plan.epoch,
                              .epoch = serving.plan.epoch,
                              .watch = {},
                              .unwatched_since = now,
                              .mode = request.mode,
                              .source = request.source,
                              .known_since = now,
                              .binding = request.binding,
                              .binding_reason = session.reason,
                              .group = request.group,
                              .ranks = RanksOf(serving.plan, request.binding, request.group),
                              .owner = request.caller,
                              .user = user,
                              .proven = true,
                              .use = use_.Take(user, request.max_tokens)};
  SayOf(grant.session, sessions_[grant.session], "is opened");
  return grant;
}

std::string SessionTable::ObstacleOf(const std::string& deployment,
                                     const OpenSessionRequest& request, TimePoint now) const {
  if (request.binding != BindingChoice::kAuto || request.group.name.empty()) return "";
  for (const auto& [id, session] : sessions_) {
    const GroupRequest& group = session.group;
    if (session.binding != BindingChoice::kP2p || group.name != request.group.name) continue;
    if (session.deployment != deployment || session.user != UserOf(request)) continue;
    // A source that has died is not waited for.
    if (session.watch.value == 0 && now - session.known_since > kWatchedAfterMax) continue;
    if (group.obstacle.empty()) {
      return absl::StrFormat("source %d of group %s makes its steps over p2p", group.source,
                             group.name);
    }
    return absl::StrFormat("source %d of group %s cannot be in it: %s", group.source, group.name,
                           group.obstacle);
  }
  return "";
}

absl::Status SessionTable::Close(SessionId session, absl::string_view caller) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return caller.empty() ? absl::OkStatus() : NoSession(session);
  if (it->second.owner != caller) return NoSession(session);
  if (it->second.watch.value != 0) {
    // OK: the source requested the end, so it must not open its watch again.
    out_->Add(CloseWatch{it->second.watch, absl::OkStatus()});
    watches_.erase(it->second.watch);
  }
  SayOf(session, it->second, "is closed");
  sessions_.erase(it);
  if (may_return_ && closed_.size() < options_->max_sessions) closed_.insert(session);
  return absl::OkStatus();
}

void SessionTable::SayOf(SessionId id, const Session& session, absl::string_view what) {
  out_->OfSession(ToHex(id), session.deployment).Say(LogLevel::kDebug, "%s", what);
}

void SessionTable::End(const std::string& deployment, const absl::Status& why) {
  std::erase_if(sessions_, [&](const auto& entry) {
    const Session& session = entry.second;
    if (session.deployment != deployment) return false;
    SayOf(entry.first, session, "is ended by the coordinator");
    if (session.watch.value != 0) {
      out_->Add(CloseWatch{session.watch, why});
      watches_.erase(session.watch);
    }
    return true;
  });
}

bool SessionTable::MayKnow(const WatchStarted& start,
                           const DeploymentController& deployment) const {
  if (start.tenant == nullptr) return true;
  const DeploymentSpec& spec = deployment.planned().spec;
  if (start.tenant->MayUse(spec.model)) return true;
  const auto known = sessions_.find(start.request.session);
  return known != sessions_.end() && known->second.owner == start.request.caller &&
         known->second.deployment == spec.name;
}

absl::StatusOr<SessionTable::Session*> SessionTable::Find(const WatchStarted& start,
                                                          const DeploymentController* deployment,
                                                          TimePoint now) {
  const WatchRequest& request = start.request;
  if (deployment == nullptr || !MayKnow(start, *deployment)) {
    return NoDeployment(request.deployment);
  }
  const auto known = sessions_.find(request.session);
  if (known == sessions_.end()) return Adopt(start, *deployment, now);
  Session& session = known->second;
  if (session.owner != request.caller) {
    if (session.proven || !IsProven(request, *deployment)) return NoSession(request.session);
    // A grant counts more than the word of whoever came first. Nothing of that word stays, which
    // may have named another deployment or phase.
    if (session.watch.value != 0) {
      watches_.erase(session.watch);
      out_->Add(CloseWatch{session.watch, NoSession(request.session)});
    }
    SayOf(request.session, session, "is taken from its claimant: its opener has shown the grant");
    sessions_.erase(known);
    return Adopt(start, *deployment, now);
  }
  // A session is bound to what it was opened for; its source holds no configs for anything else.
  if (session.deployment == request.deployment && session.phase == request.phase) return &session;
  return MakeError(
      absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
      absl::StrFormat("session %s belongs to deployment %s, phase %s", ToHex(request.session),
                      session.deployment, PhaseName(session.phase)),
      {{"session", ToHex(request.session)}});
}

// After a restart of the coordinator the session is taken from its source's word, provided that the
// source names a plan that was announced: only a source that had a grant knows its hash. Where
// callers are known, the grant has to be theirs: every source of the deployment knows the plan.
absl::StatusOr<SessionTable::Session*> SessionTable::Adopt(const WatchStarted& start,
                                                           const DeploymentController& deployment,
                                                           TimePoint now) {
  const WatchRequest& request = start.request;
  const bool known_caller = !request.caller.empty();
  const bool proven = known_caller && IsProven(request, deployment);
  const bool believed = !known_caller || (request.signature == GrantSignature() &&
                                          now - started_at_ < options_->session_linger);
  if (!proven && !believed) return NoSession(request.session);
  if (request.session.empty() || !deployment.planned().spec.Serves(request.phase) ||
      !deployment.serving().WasAnnounced(request.epoch, request.hash)) {
    if (!proven && known_caller) return NoSession(request.session);
    return MakeError(
        absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
        absl::StrFormat("session %s and its plan, epoch %d of deployment %s, are not "
                        "known here; open a new session",
                        ToHex(request.session), request.epoch.value, request.deployment),
        {{"session", ToHex(request.session)},
         {"deployment", request.deployment},
         {"epoch", absl::StrCat(request.epoch.value)}});
  }
  // Also here: whoever closes a session and then shows its grant has it back. But one that was open
  // when this coordinator started is not a new one, and its limit may have been lowered since.
  const Tenant* const tenant = start.tenant.get();
  const bool returns = now - started_at_ < options_->session_linger &&
                       closed_.size() < options_->max_sessions &&
                       !closed_.contains(request.session);
  SY_RETURN_IF_ERROR(returns ? use_.CheckReturn(tenant, request.caller, request.max_tokens)
                             : use_.Check(tenant, request.caller, request.max_tokens));
  SY_RETURN_IF_ERROR(CheckRoom());
  Session& session = sessions_[request.session];
  session.deployment = request.deployment;
  session.phase = request.phase;
  session.opened = request.epoch;  // or earlier, which only its former coordinator knew
  session.owner = request.caller;
  session.proven = proven;
  session.use = use_.Take(request.caller, request.max_tokens);
  return &session;
}

void SessionTable::Watch(const WatchStarted& start, const DeploymentController* deployment,
                         TimePoint now) {
  const WatchId watch = start.watch;
  const WatchRequest& request = start.request;
  absl::StatusOr<Session*> found = Find(start, deployment, now);
  if (!found.ok()) {
    out_->Add(CloseWatch{watch, found.status()});
    return;
  }
  Session& session = **found;
  if (session.watch.value != 0) {
    // The source dialed again before its old stream was seen to end.
    watches_.erase(session.watch);
    out_->Add(CloseWatch{session.watch, MakeError(absl::StatusCode::kAborted, Reason::kBadRequest,
                                                  "a newer watch of this session has taken over",
                                                  {{"session", ToHex(request.session)}})});
  }
  session.watch = watch;
  session.use.Resume();
  session.peer = start.peer;
  if (session.known_since == TimePoint()) session.known_since = now;
  // Not above what was announced: the source would then miss the epochs up to that number.
  const auto& serving = deployment->serving().update();
  const Epoch announced = serving == nullptr ? Epoch{} : serving->plan.epoch;
  session.epoch = std::min(request.epoch, announced);
  session.unwatched_since = now;
  watches_[watch] = request.session;
  // An epoch may have been announced while the source had no watch.
  if (announced > session.epoch) {
    session.epoch = announced;
    out_->Add(SendPlanUpdate{watch, serving});
  }
}

// The session stays: the source connects again after a broken stream, and its attachments, which
// need no coordinator, have gone on meanwhile.
void SessionTable::StopWatch(WatchId watch, TimePoint now) {
  const auto it = watches_.find(watch);
  if (it == watches_.end()) return;
  Session& session = sessions_.at(it->second);
  session.watch = {};
  session.peer.clear();
  session.unwatched_since = now;
  // A gateway watches as long as it has the session, so this one is gone or out of reach, and its
  // caller needs room for another session.
  if (session.use.id() != session.owner) session.use.Pause();
  watches_.erase(it);
}

void SessionTable::Announce(const std::shared_ptr<const PlanUpdate>& update) {
  for (const auto& [watch, id] : watches_) {
    Session& session = sessions_.at(id);
    // A source that opened its session on this epoch has the plan already, and it must never go
    // back.
    if (session.deployment != update->plan.deployment) continue;
    // The plan was announced before, with time for sessions of a former model; now that is over.
    const bool again = session.opened < update->plan.epoch && session.epoch == update->plan.epoch;
    if (session.epoch >= update->plan.epoch && !again) continue;
    session.epoch = update->plan.epoch;
    session.ranks = RanksOf(update->plan, session.binding, session.group);
    out_->Add(SendPlanUpdate{watch, update});
  }
}

// Attachments end with their own streams, so that forgetting a session frees nothing but its entry.
void SessionTable::Expire(TimePoint now) {
  if (may_return_ && now - started_at_ >= options_->session_linger) {
    may_return_ = false;
    closed_.clear();
  }
  std::erase_if(sessions_, [&](const auto& entry) {
    const Session& session = entry.second;
    const bool over =
        session.watch.value == 0 && now - session.unwatched_since >= options_->session_linger;
    if (over) SayOf(entry.first, session, "is forgotten: nobody has watched it");
    return over;
  });
}

void SessionTable::AddBinding(const Session& session, SessionView* view) {
  view->binding = session.binding;
  view->binding_reason = session.binding_reason;
  if (session.binding != BindingChoice::kCollective) return;
  view->group = session.group;
  view->ranks = session.ranks;
}

std::vector<SessionView> SessionTable::View(TimePoint now) const {
  std::vector<SessionView> views;
  for (const auto& [id, session] : sessions_) {
    views.push_back({.name = ToHex(id).substr(0, SessionView::kNameDigits),
                     .deployment = session.deployment,
                     .phase = session.phase,
                     .mode = session.mode,
                     .source = session.source,
                     .peer = session.peer,
                     .opened = session.opened,
                     .epoch = session.epoch,
                     .age = now - session.known_since});
    if (session.binding) AddBinding(session, &views.back());
  }
  std::sort(views.begin(), views.end(), [](const SessionView& a, const SessionView& b) {
    return std::tie(a.deployment, b.age, a.name) < std::tie(b.deployment, a.age, b.name);
  });
  return views;
}

std::int32_t SessionTable::CountOf(const std::string& deployment) const {
  return static_cast<std::int32_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [&](const auto& entry) { return entry.second.deployment == deployment; }));
}

std::int32_t SessionTable::CountBefore(const std::string& deployment, Epoch epoch) const {
  return static_cast<std::int32_t>(
      std::count_if(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
        return entry.second.deployment == deployment && entry.second.opened < epoch;
      }));
}

}  // namespace switchyard
