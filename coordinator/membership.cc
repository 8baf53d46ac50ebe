#include "coordinator/membership.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "coordinator/members/member_errors.h"
#include "coordinator/members/register_check.h"
#include "coordinator/spec/deployment.h"
#include "core/base/amount_text.h"
#include "core/base/error.h"
#include "core/base/name.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// One that cannot connect may be what is wrong, two hardly.
constexpr std::size_t kWitnessesMax = 2;

// Bounded, like all that a worker can make the coordinator remember.
constexpr std::size_t kReplacedMax = 1024;

std::int64_t WholeSeconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

// A cordoned worker stays where it serves.
bool IsAllowed(const Member& member, const Plan* serving) {
  return member.duty != WorkerDuty::kCordoned ||
         (serving != nullptr && serving->FindWorker(member.id).has_value());
}

// Takes over what a worker says of itself.
void CopyFacts(const Register& request, Member* member) {
  member->id = request.worker_id;
  member->incarnation = request.incarnation;
  member->secret = request.secret;
  member->endpoint = request.endpoint;
  member->pool = request.pool;
  member->release = request.release;
  member->capabilities = request.capabilities;
  member->checks_opener = request.checks_opener;
  member->grant_keys = request.grant_keys;
}

}  // namespace

GrantKeys Member::KeysOf(const std::string& deployment) const {
  GrantKeys keys;
  for (const DeploymentKeys& held : grant_keys) {
    if (held.deployment != deployment) continue;
    for (const GrantKey& key : held.keys) AddGrantKey(key, &keys);
  }
  return keys;
}

const Hold* Member::Find(const EpochKey& key, const PlanHash& hash) const {
  const auto it = holds.find(key);
  return it != holds.end() && it->second.hash == hash ? &it->second : nullptr;
}

std::string Member::Problem() const {
  if (!stuck.empty()) return absl::StrCat("stuck: ", stuck);
  if (!unreachable.empty()) return absl::StrCat("unreachable: ", unreachable);
  if (duty == WorkerDuty::kDraining) return "is drained by an operator";
  return "";
}

const char* Member::WayOut() const {
  if (!stuck.empty()) return "is stuck";
  if (duty == WorkerDuty::kDraining) return "is drained";
  if (leaving) return "leaves";
  if (!connected()) return "is lost";
  if (!unreachable.empty()) return "is unreachable";
  return "is not needed";
}

void Membership::OpenStream(StreamId stream, TimePoint now) {
  if (streams_.size() >= options_->max_streams) {
    out_->Add(switchyard::CloseStream{
        stream, MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                          absl::StrFormat("the limit of %d worker streams is reached; raise the "
                                          "coordinator's max_streams",
                                          options_->max_streams))});
    return;
  }
  streams_[stream] = {now, ""};
}

bool Membership::CloseStream(StreamId stream, TimePoint now) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return false;
  const std::string id = it->second.member;
  streams_.erase(it);
  if (id.empty()) return false;
  Disconnect(id, now);
  return true;
}

void Membership::Disconnect(const std::string& id, TimePoint now) {
  if (id.empty()) return;
  Member& member = members_.at(id);
  member.stream = {};
  // The holds are kept: within its grace the worker still counts as holding what it has, so that a
  // broken connection does not move experts.
  member.disconnected_at = now;
  if (member.goodbye_sent) {
    // It was released, so that its end is no loss and no grace is due.
    Remove(id, "left", LogLevel::kInfo);
  } else {
    out_->OfWorker(id, "StreamEnded")
        .Warn(
            "has lost its stream, and has %d ms to reconnect",
            std::chrono::duration_cast<std::chrono::milliseconds>(options_->stream_grace).count());
  }
}

absl::Status Membership::Admit(const Member* known, const Register& request) {
  if (!IsName(request.worker_id)) {
    return BadRegister(request, "worker_id", "must be 1 to 128 characters of [A-Za-z0-9._-]");
  }
  SY_RETURN_IF_ERROR(CheckRegister(request));
  const std::pair<std::string, Incarnation> asked{request.worker_id, request.incarnation};
  // It may be a process that was stopped for long and does not know that it was replaced.
  if (std::find(replaced_.begin(), replaced_.end(), asked) != replaced_.end()) {
    return Superseded(request.worker_id);
  }
  if (known == nullptr) return absl::OkStatus();
  if (known->incarnation == request.incarnation) {
    if (known->secret == request.secret) return absl::OkStatus();
    return HeldByAnother(request.worker_id, "whoever registers here repeats its incarnation");
  }
  // The old process may still be alive, but without a stream nothing can be sent to it. A pod that
  // was replaced must not wait for the lease of the one before it.
  if (!known->connected()) return absl::OkStatus();
  return HeldByAnother(
      request.worker_id,
      absl::StrFormat(
          "end that one, or wait until its lease of %d ms has expired",
          std::chrono::duration_cast<std::chrono::milliseconds>(options_->lease_ttl).count()));
}

absl::StatusOr<Member*> Membership::Join(StreamId stream, const Register& request, TimePoint now) {
  const auto entry = streams_.find(stream);
  if (entry == streams_.end()) return absl::CancelledError("the stream is already closed");
  const auto known = members_.find(request.worker_id);
  Member* before = known == members_.end() ? nullptr : &known->second;
  absl::Status admitted = Admit(before, request);
  // A second Register would change the identity of a stream whose messages are already on the way.
  if (admitted.ok() && !entry->second.member.empty()) {
    admitted = BadRegister(request, "register", "was sent twice on one stream");
  }
  if (!admitted.ok()) {
    // The member of this stream, if any, loses it and has its grace to come back.
    Disconnect(entry->second.member, now);
    out_->Add(Report{LogLevel::kWarn, absl::StrCat("a worker is refused: ", admitted.message())});
    Close(stream, admitted);
    return admitted;
  }
  const bool returning = before != nullptr && before->incarnation == request.incarnation;
  if (returning && before->connected()) {
    // Only the newer stream counts: what still arrives on the old one was sent before.
    Close(before->stream, Reconnected(request.worker_id));
  }
  if (before != nullptr && !returning) {
    Ban(before->id, before->incarnation);
    Remove(before->id, "replaced by a new process", LogLevel::kInfo);
  }
  Member& member = members_[request.worker_id];
  if (member.endpoint != request.endpoint) {
    member.reached = member.dialing = member.witnessed = false;
  }
  CopyFacts(request, &member);
  const auto duty = duties_.find(member.id);
  member.duty = duty == duties_.end() ? WorkerDuty::kServe : duty->second;
  member.stream = stream;
  member.last_message = member.moved_at = now;
  // A worker that still wants to leave says so again after Registered.
  member.leaving = member.goodbye_sent = false;
  // Messages may have been lost; a new incarnation has nothing. What is missing is prepared again.
  member.holds.clear();
  member.heartbeat = {};
  for (const ResidentEpoch& held : request.resident) {
    member.holds[{held.deployment, held.epoch}] = {
        held.hash, held.committed ? HoldState::kCommitted : HoldState::kPrepared};
    // Sources may be using it. A coordinator that restarts must not leave it out because of a dial
    // that fails while everything starts at once.
    if (held.committed) member.reached = true;
  }
  streams_.at(stream).member = member.id;
  // First on this stream: with it the worker learns the lease and starts its heartbeats.
  Send(member, Registered{options_->lease_ttl, options_->tracing});
  member.unreachable.clear();
  if (!member.reached && !member.dialing) Dial(member);
  DialUnwitnessed(member);
  out_->OfWorker(member.id, returning ? "Reconnected" : "Joined")
      .Info("%s, incarnation %s, %s resident", returning ? "reconnected" : "joined",
            ToHex(member.incarnation), CountText(std::ssize(member.holds), "epoch"));
  if (member.duty != WorkerDuty::kServe) {
    out_->OfWorker(member.id).Info("is %s; 'syctl uncordon worker %s' lets plans use it",
                                   WorkerDutyName(member.duty), member.id);
  }
  return &member;
}

Member* Membership::RenewLease(StreamId stream, TimePoint now) {
  const auto it = streams_.find(stream);
  if (it == streams_.end()) return nullptr;
  // A peer that does not begin with Register is not a worker of this version.
  if (it->second.member.empty()) {
    Close(stream, MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest,
                            "the first message of a stream must be Register"));
    return nullptr;
  }
  Member& member = members_.at(it->second.member);
  member.last_message = now;
  return &member;
}

bool Membership::Expire(TimePoint now) {
  std::vector<StreamId> unregistered;
  for (const auto& [stream, entry] : streams_) {
    if (entry.member.empty() && now - entry.opened_at >= options_->register_timeout) {
      unregistered.push_back(stream);
    }
  }
  for (const StreamId stream : unregistered) {
    Close(stream, MakeError(absl::StatusCode::kDeadlineExceeded, Reason::kBadRequest,
                            "no Register was sent on this stream in time"));
  }
  // Collected first: Remove changes the map.
  std::vector<std::string> dead;
  for (const auto& [id, member] : members_) {
    // Any message renews the lease, not only a heartbeat.
    const bool silent = now - member.last_message >= options_->lease_ttl;
    // Both clocks run for a disconnected member; the grace is the shorter one.
    const bool away = !member.connected() && now - member.disconnected_at >= options_->stream_grace;
    if (silent || away) dead.push_back(id);
  }
  for (const std::string& id : dead) {
    const Member& member = members_.at(id);
    if (member.connected()) {
      const StreamId stream = member.stream;
      Close(stream, Silent(member.id, options_->lease_ttl));
      // In this order: Remove erases the member that the error names.
      Remove(id, "sent nothing for a whole lease");
    } else {
      Remove(id, "did not reconnect");
    }
  }
  return !dead.empty();
}

void Membership::OnHeartbeat(Member& member, const Heartbeat& heartbeat, TimePoint now) {
  if (heartbeat.progress != member.heartbeat.progress) member.moved_at = now;
  member.staging.Update(heartbeat.staging, now);
  member.heartbeat = heartbeat;
  member.heartbeat.staging.clear();
  member.heartbeat.load.clear();
}

void Membership::Dial(Member& member) {
  member.dialing = true;
  member.witnesses = WitnessesFor(member);
  ++member.dials;
  out_->Add(DialWorker{member.id, member.incarnation, member.endpoint, member.witnesses});
}

std::vector<DialWitness> Membership::WitnessesFor(const Member& member) const {
  std::vector<DialWitness> others;
  // Those that serve first: one that has just joined may be what cannot be reached itself.
  for (const bool reached : {true, false}) {
    for (const auto& [id, other] : members_) {
      if (id != member.id && other.connected() && other.reached == reached) {
        others.push_back({id, other.endpoint});
      }
    }
  }
  if (others.size() <= kWitnessesMax) return others;
  // In turn: the first two may be what is cut off, and reached only by each other.
  std::vector<DialWitness> witnesses;
  for (std::size_t i = 0; i < kWitnessesMax; ++i) {
    witnesses.push_back(others[(member.dials * kWitnessesMax + i) % others.size()]);
  }
  return witnesses;
}

bool Membership::IsReached(absl::string_view id) const {
  const auto it = members_.find(std::string(id));
  return it != members_.end() && it->second.connected() && it->second.reached;
}

void Membership::DialUnwitnessed(const Member& witness) {
  for (auto& [id, member] : members_) {
    // One that holds an epoch has sources, which have connected to it.
    if (id != witness.id && member.connected() && !member.witnessed && !member.dialing &&
        member.holds.empty()) {
      Dial(member);
    }
  }
}

void Membership::RepeatDials(TimePoint now) {
  for (auto& [id, member] : members_) {
    const bool wanted = member.connected() && !member.reached && !member.dialing;
    if (wanted && now >= member.dial_due) Dial(member);
  }
}

absl::Status Membership::Judge(const WorkerDialed& dialed) const {
  const auto metadata = MetadataOf(dialed.status);
  const auto witness = metadata.find(kWitnessKey);
  if (witness == metadata.end() || IsReached(witness->second)) return dialed.status;
  return absl::OkStatus();
}

Membership::DialOutcome Membership::OnDialed(const WorkerDialed& dialed, TimePoint now) {
  const auto it = members_.find(dialed.worker);
  if (it == members_.end()) return DialOutcome::kNothingNew;
  Member& member = it->second;
  if (member.incarnation != dialed.incarnation || member.endpoint != dialed.endpoint) {
    return DialOutcome::kNothingNew;
  }
  member.dialing = false;
  member.witnessed =
      std::any_of(member.witnesses.begin(), member.witnesses.end(),
                  [this](const DialWitness& each) { return IsReached(each.worker); });
  // A plan has come to use it meanwhile, and its sources know better.
  if (member.reached && !member.holds.empty()) return DialOutcome::kNothingNew;
  const absl::Status status = Judge(dialed);
  if (status.ok() && member.reached) return DialOutcome::kNothingNew;
  member.reached = status.ok();
  if (status.ok()) {
    if (!member.unreachable.empty()) {
      out_->OfWorker(member.id, "Reachable").Info("can be reached now");
    }
    member.unreachable.clear();
    DialUnwitnessed(member);
    return DialOutcome::kReached;
  }
  member.dial_due = now + options_->dial_again;
  // A worker may stay unreachable for days, for one reason, of which each witness tells in turn.
  const bool known = !member.unreachable.empty() && (MetadataOf(status).contains(kWitnessKey) ||
                                                     member.unreachable == status.message());
  member.unreachable = std::string(status.message());
  if (known) return DialOutcome::kNothingNew;
  out_->OfWorker(member.id, "Unreachable")
      .Warn("is left out of plans, since it cannot be reached: %s", member.unreachable);
  return DialOutcome::kUnreachable;
}

bool Membership::JudgeProgress(TimePoint now) {
  bool changed = false;
  for (auto& [id, member] : members_) {
    // Nothing is known about the work of a disconnected worker, and its grace is short.
    if (!member.connected()) continue;
    std::string why = WhyStuck(member, now);
    if (!why.empty()) {
      if (member.stuck.empty()) {
        changed = true;
        out_->OfWorker(id, "Stuck").Warn("is stuck and is left out of plans: %s", why);
      }
      member.stuck = std::move(why);
      member.stuck_at = now;
    } else if (!member.stuck.empty() && now >= member.stuck_at + options_->stuck_recovery) {
      // Not at its first sign of life: moving its experts to and fro costs more than it would add.
      changed = true;
      out_->OfWorker(id, "Recovered").Info("works again");
      member.stuck.clear();
    }
  }
  return changed;
}

std::string Membership::WhyStuck(const Member& member, TimePoint now) const {
  if (now >= member.moved_at + options_->stuck_thread) {
    return absl::StrFormat("its data thread has made no turn for %d s",
                           WholeSeconds(now - member.moved_at));
  }
  if (member.heartbeat.batch_age >= options_->stuck_batch) {
    return absl::StrFormat("a batch has been running for %d s",
                           WholeSeconds(member.heartbeat.batch_age));
  }
  for (const auto& [key, hold] : member.holds) {
    if (hold.state != HoldState::kRetireSent || now < hold.free_by) continue;
    return absl::StrFormat("it has not freed epoch %d of deployment %s for %d s", key.epoch.value,
                           key.deployment, WholeSeconds(now - hold.retired_at));
  }
  return "";
}

void Membership::RenewAll(TimePoint now) {
  for (auto& [id, member] : members_) {
    member.last_message = member.moved_at = now;
    if (!member.connected()) member.disconnected_at = now;
  }
  // Streams too: their Register may wait unread in this process.
  for (auto& [stream, entry] : streams_) entry.opened_at = now;
}

const Member* Membership::Find(const PlanWorker& worker) const {
  const auto it = members_.find(worker.id);
  // Another process with the same id holds nothing of what this plan was prepared with.
  const bool found = it != members_.end() && it->second.incarnation == worker.incarnation;
  return found ? &it->second : nullptr;
}

Member* Membership::Find(const PlanWorker& worker) {
  return const_cast<Member*>(std::as_const(*this).Find(worker));
}

bool IsInPools(const std::vector<std::string>& pools, const std::string& pool) {
  return pools.empty() || std::find(pools.begin(), pools.end(), pool) != pools.end();
}

std::vector<std::string> Membership::Problems(const Plan* serving,
                                              const std::vector<std::string>& pools) const {
  std::vector<std::string> problems;
  for (const auto& [id, member] : members_) {
    if (!IsInPools(pools, member.pool)) continue;
    std::string why = member.Problem();
    if (why.empty() && !IsAllowed(member, serving)) why = "is cordoned by an operator";
    if (!why.empty()) problems.push_back(absl::StrCat(id, ": ", why));
  }
  return problems;
}

Epoch Membership::HighestHeld(const std::string& deployment) const {
  Epoch highest;
  for (const auto& [id, member] : members_) {
    for (const auto& [key, hold] : member.holds) {
      if (key.deployment != deployment || key.epoch > kHeldEpochMax) continue;
      highest = std::max(highest, key.epoch);
    }
  }
  return highest;
}

std::vector<std::string> Membership::CandidateIds(const Plan* serving,
                                                  const std::vector<std::string>& pools) const {
  std::vector<std::string> ids;
  for (const auto& [id, member] : members_) {
    const bool usable = member.usable() && IsInPools(pools, member.pool);
    if (usable && IsAllowed(member, serving)) ids.push_back(id);
  }
  return ids;
}

void Membership::SetDuty(const std::string& worker, WorkerDuty duty) {
  if (duty == WorkerDuty::kServe) {
    duties_.erase(worker);
  } else {
    duties_[worker] = duty;
  }
  const auto it = members_.find(worker);
  if (it != members_.end()) it->second.duty = duty;
}

void Membership::Send(const Member& member, CoordinatorMessage message) {
  if (member.connected()) out_->Add(SendMessage{member.stream, std::move(message)});
}

WorkerState Membership::StateOf(const Member& member) const {
  if (!member.connected()) return WorkerState::kDisconnected;
  if (!member.stuck.empty()) return WorkerState::kStuck;
  if (!member.unreachable.empty()) return WorkerState::kUnreachable;
  if (member.leaving) return WorkerState::kLeaving;
  switch (member.duty) {
    case WorkerDuty::kServe:
      break;
    case WorkerDuty::kCordoned:
      return WorkerState::kCordoned;
    case WorkerDuty::kDraining:
      return member.holds.empty() ? WorkerState::kDrained : WorkerState::kDraining;
  }
  return WorkerState::kLive;
}

void Membership::Remove(const std::string& id, absl::string_view why, LogLevel level) {
  out_->OfWorker(id, "Left").Say(level, "is no longer a member: %s", why);
  members_.erase(id);
}

void Membership::Close(StreamId stream, const absl::Status& why) {
  out_->Add(switchyard::CloseStream{stream, why});
  streams_.erase(stream);
}

// A process that was replaced would otherwise push its successor out again as soon as that one's
// stream breaks, and the two would take turns.
void Membership::Ban(const std::string& id, Incarnation incarnation) {
  replaced_.emplace_back(id, incarnation);
  // The oldest first: by then its process is long gone.
  if (replaced_.size() > kReplacedMax) replaced_.pop_front();
}

}  // namespace switchyard
