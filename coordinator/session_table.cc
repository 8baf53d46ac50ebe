#include "coordinator/session_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {

absl::Status SessionTable::CheckRoom() const {
  if (sessions_.size() < options_->max_sessions) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                   absl::StrFormat("%d sessions are open, which is the limit; close some, or raise "
                                   "the coordinator's max_sessions",
                                   sessions_.size()),
                   {{"have", absl::StrCat(options_->max_sessions)}});
}

absl::StatusOr<SessionGrant> SessionTable::Open(const OpenSessionRequest& order,
                                                const PlanUpdate& serving, TimePoint now) {
  SY_RETURN_IF_ERROR(CheckRoom());
  SessionGrant grant;
  grant.session = rng_->NextId<SessionId>();
  grant.cookie = Cookie{rng_->Next()};
  grant.request = order;
  grant.plan = serving.plan;
  grant.hash = serving.hash;
  sessions_[grant.session] = {order.deployment, order.phase, serving.plan.epoch, WatchId{}, now};
  return grant;
}

void SessionTable::Close(SessionId session) {
  const auto it = sessions_.find(session);
  if (it == sessions_.end()) return;
  if (it->second.watch.value != 0) {
    out_->Add(CloseWatch{it->second.watch, absl::OkStatus()});
    watches_.erase(it->second.watch);
  }
  sessions_.erase(it);
}

absl::StatusOr<SessionTable::Session*> SessionTable::Find(const WatchRequest& order,
                                                          const DeploymentController* deployment) {
  if (deployment == nullptr) {
    return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel,
                     absl::StrFormat("there is no deployment \"%s\"; apply it", order.deployment),
                     {{"deployment", order.deployment}});
  }
  const auto known = sessions_.find(order.session);
  if (known != sessions_.end()) {
    if (known->second.deployment == order.deployment && known->second.phase == order.phase) {
      return &known->second;
    }
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
        absl::StrFormat("session %s is one of deployment %s, phase %s", ToHex(order.session),
                        known->second.deployment, PhaseName(known->second.phase)),
        {{"session", ToHex(order.session)}});
  }
  if (order.session.empty() || !deployment->record().spec.Serves(order.phase) ||
      !deployment->WasAnnounced(order.epoch, order.hash)) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                     absl::StrFormat("session %s is not known here, nor is its plan of epoch %d of "
                                     "deployment %s; open a new session",
                                     ToHex(order.session), order.epoch.value, order.deployment),
                     {{"session", ToHex(order.session)},
                      {"deployment", order.deployment},
                      {"epoch", absl::StrCat(order.epoch.value)}});
  }
  SY_RETURN_IF_ERROR(CheckRoom());
  Session& session = sessions_[order.session];
  session.deployment = order.deployment;
  session.phase = order.phase;
  return &session;
}

void SessionTable::Watch(WatchId watch, const WatchRequest& order,
                         const DeploymentController* deployment, TimePoint now) {
  absl::StatusOr<Session*> found = Find(order, deployment);
  if (!found.ok()) {
    out_->Add(CloseWatch{watch, found.status()});
    return;
  }
  Session& session = **found;
  if (session.watch.value != 0) {
    watches_.erase(session.watch);
    out_->Add(CloseWatch{session.watch, MakeError(absl::StatusCode::kAborted, Reason::kBadRequest,
                                                  "a newer watch of this session has taken over",
                                                  {{"session", ToHex(order.session)}})});
  }
  session.watch = watch;
  session.epoch = order.epoch;
  session.unwatched_since = now;
  watches_[watch] = order.session;
  const auto& serving = deployment->serving();
  if (serving != nullptr && serving->plan.epoch > session.epoch) {
    session.epoch = serving->plan.epoch;
    out_->Add(SendPlanUpdate{watch, serving});
  }
}

void SessionTable::StopWatch(WatchId watch, TimePoint now) {
  const auto it = watches_.find(watch);
  if (it == watches_.end()) return;
  Session& session = sessions_.at(it->second);
  session.watch = {};
  session.unwatched_since = now;
  watches_.erase(it);
}

void SessionTable::Announce(const std::shared_ptr<const PlanUpdate>& news) {
  for (const auto& [watch, id] : watches_) {
    Session& session = sessions_.at(id);
    if (session.deployment != news->plan.deployment || session.epoch >= news->plan.epoch) continue;
    session.epoch = news->plan.epoch;
    out_->Add(SendPlanUpdate{watch, news});
  }
}

void SessionTable::Expire(TimePoint now) {
  std::erase_if(sessions_, [&](const auto& entry) {
    const Session& session = entry.second;
    return session.watch.value == 0 && now - session.unwatched_since >= options_->session_linger;
  });
}

std::int32_t SessionTable::CountOf(const std::string& deployment) const {
  return static_cast<std::int32_t>(
      std::count_if(sessions_.begin(), sessions_.end(),
                    [&](const auto& entry) { return entry.second.deployment == deployment; }));
}

}  // namespace switchyard
