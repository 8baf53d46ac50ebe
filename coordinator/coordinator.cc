#include "coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/config_planner.h"
#include "coordinator/session_request.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {

Coordinator::Coordinator(CoordinatorOptions options, const PlacementPolicy* placement, Rng* rng,
                         std::vector<RecoveredDeployment> stored, TimePoint now)
    : options_(options),
      members_(&options_, &out_),
      sessions_(&options_, rng, &out_),
      context_{&options_, &members_, placement, &memory_, rng, &out_},
      started_at_(now),
      now_(now) {
  // Nothing is sent to workers here: they have to register first, and the store is read already.
  for (RecoveredDeployment& one : stored) {
    const std::string name = one.record.spec.name;
    if (one.record.grant_key.empty()) {
      // Written before grants were signed. The outcome of the write does not matter: after a
      // failure the next start makes another key, and the workers report this one.
      one.record.grant_key = GrantKey::Random(rng);
      out_.Write(PutDeployment{name, CanonicalBytes(one.record)});
    }
    deployments_.try_emplace(name, context_, std::move(one), now);
  }
}

std::vector<Effect> Coordinator::Step(const Event& event, TimePoint now) {
  // If this process was stopped for that long, no message was read: the silence says nothing
  // about the workers, and to expire their leases would move every expert for nothing.
  if (now - now_ > options_.lease_ttl / 2) members_.RenewAll(now);
  now_ = now;
  std::visit([this](const auto& e) { On(e); }, event);
  const auto* message = std::get_if<StreamMessage>(&event);
  // Heartbeats are most of the traffic and change nothing that a deployment looks at.
  const bool only_alive = message != nullptr && std::holds_alternative<Heartbeat>(message->message);
  if (!only_alive && !std::holds_alternative<ModelProgress>(event)) EvaluateAll();
  return out_.Take();
}

void Coordinator::EvaluateAll() {
  for (auto& [name, controller] : deployments_) {
    CountFormerSessions(name, &controller);
    controller.Evaluate(now_);
    if (const auto update = controller.TakeAnnouncement()) {
      // In this order: sources learn of the new epoch before any worker retires the one that
      // they use (I6).
      sessions_.Announce(update);
      CountFormerSessions(name, &controller);
      controller.Evaluate(now_);
      // A former model that nobody uses ends in the same step.
      if (const auto again = controller.TakeAnnouncement()) sessions_.Announce(again);
    }
  }
  ReleaseLeavers();
}

void Coordinator::CountFormerSessions(const std::string& name, DeploymentController* controller) {
  // Only while one is kept, because it looks at every session.
  if (!controller->keeps_former()) return;
  const Epoch serving = controller->serving().plan()->epoch;
  controller->SetFormerSessions(sessions_.CountBefore(name, serving));
}

void Coordinator::OnMembersChanged() {
  for (auto& [name, controller] : deployments_) controller.OnMembersChanged(now_);
}

// A worker that leaves keeps serving until its experts serve elsewhere; only then may it exit.
void Coordinator::ReleaseLeavers() {
  for (auto& [id, member] : members_.members()) {
    if (!member.leaving || member.goodbye_sent || !member.connected()) continue;
    const bool needed =
        std::any_of(deployments_.begin(), deployments_.end(),
                    [&, &m = member](const auto& entry) { return entry.second.Needs(m, now_); });
    if (needed) continue;
    member.goodbye_sent = true;
    members_.Send(member, Goodbye{});
  }
}

// Its store was lost or replaced, or the worker was moved here from another coordinator.
void Coordinator::RetireUnclaimed() {
  if (now_ < started_at_ + options_.unclaimed_kept) return;
  const auto claimed = [this](const std::string& deployment) {
    return deployments_.contains(deployment) ||
           std::any_of(applies_.begin(), applies_.end(),
                       [&](const auto& apply) { return apply.second.spec.name == deployment; });
  };
  for (auto& [id, member] : members_.members()) {
    if (!member.connected()) continue;
    for (auto& [key, hold] : member.holds) {
      if (hold.state == HoldState::kRetireSent || claimed(key.deployment)) continue;
      out_.Warn(
          "worker %s holds epoch %d of deployment %s, which does not exist here: it is retired", id,
          key.epoch.value, key.deployment);
      hold.state = HoldState::kRetireSent;
      hold.retired_at = now_;
      members_.Send(member, switchyard::Retire{key.deployment, key.epoch});
    }
  }
}

DeploymentController* Coordinator::Find(const std::string& deployment) {
  const auto it = deployments_.find(deployment);
  return it == deployments_.end() ? nullptr : &it->second;
}

void Coordinator::On(const StreamOpened& event) { members_.OpenStream(event.stream, now_); }

void Coordinator::On(const StreamClosed& event) {
  if (members_.CloseStream(event.stream, now_)) OnMembersChanged();
}

void Coordinator::On(const StreamMessage& event) {
  if (const auto* request = std::get_if<Register>(&event.message)) {
    // A refused worker's stream is closed with the reason. It may have been that of a member.
    const auto joined = members_.Join(event.stream, *request, now_);
    if (!joined.ok()) return OnMembersChanged();
    for (auto& [name, controller] : deployments_) controller.OnJoined(**joined, now_);
    return;
  }
  Member* member = members_.RenewLease(event.stream, now_);
  if (member == nullptr) return;
  std::visit([this, member](const auto& m) { OnMessage(*member, m); }, event.message);
}

void Coordinator::On(const WorkerDialed& event) {
  switch (members_.OnDialed(event, now_)) {
    case Membership::DialOutcome::kNothingNew:
      break;
    case Membership::DialOutcome::kReached: {
      // Plans can use it only now, and workers that are reached together share one epoch.
      const Member& member = members_.members().at(event.worker);
      for (auto& [name, controller] : deployments_) controller.OnJoined(member, now_);
      break;
    }
    case Membership::DialOutcome::kUnreachable:
      OnMembersChanged();
      break;
  }
}

void Coordinator::OnMessage(Member& member, const PrepareAck& ack) {
  // An answer for a deployment that does not exist is dropped: the epoch it is about cannot be in
  // use.
  if (auto* controller = Find(ack.deployment)) controller->OnPrepareAck(member, ack);
}

void Coordinator::OnMessage(Member& member, const PrepareNack& nack) {
  if (auto* controller = Find(nack.deployment)) controller->OnPrepareNack(member, nack);
}

void Coordinator::OnMessage(Member& member, const CommitAck& ack) {
  if (auto* controller = Find(ack.deployment)) controller->OnCommitAck(member, ack);
}

void Coordinator::OnMessage(Member& member, const CommitNack& nack) {
  if (auto* controller = Find(nack.deployment)) controller->OnCommitNack(member, nack);
}

void Coordinator::OnMessage(Member& member, const RetireAck& ack) {
  // Also for a deployment that does not exist (RetireUnclaimed). Only an answer counts: the number
  // may have been prepared again on this worker since.
  const auto it = member.holds.find({ack.deployment, ack.epoch});
  if (it != member.holds.end() && it->second.state == HoldState::kRetireSent) {
    member.holds.erase(it);
  }
}

void Coordinator::OnMessage(Member& member, const Heartbeat& heartbeat) {
  members_.OnHeartbeat(member, heartbeat, now_);
}

void Coordinator::OnMessage(Member& member, const Leave& /*leave*/) {
  // A repetition must not restart the time in which further leaves share one epoch.
  if (std::exchange(member.leaving, true)) return;
  out_.Info("worker %s asks to leave", member.id);
  for (auto& [name, controller] : deployments_) controller.OnLeaveRequested(now_);
}

void Coordinator::OnMessage(Member& /*member*/, const Register& /*request*/) {}  // Handled before.

absl::Status Coordinator::CheckApply(const DeploymentSpec& spec) const {
  // One apply of a name at a time: of two, the slower one would win.
  const bool running = std::any_of(applies_.begin(), applies_.end(), [&spec](const auto& entry) {
    return entry.second.spec.name == spec.name;
  });
  if (running) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                     absl::StrFormat("deployment %s is already being applied; try again when that "
                                     "has finished",
                                     spec.name),
                     {{"deployment", spec.name}});
  }
  // Replacing a deployment needs no room.
  if (deployments_.contains(spec.name)) return absl::OkStatus();
  if (deployments_.size() + applies_.size() < options_.max_deployments) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kBadConfig,
                   absl::StrFormat("the limit of %d deployments is reached; raise the "
                                   "coordinator's max_deployments",
                                   options_.max_deployments));
}

void Coordinator::On(const ApplyRequested& event) {
  // Checked before the checkpoint is read, which may take minutes.
  absl::StatusOr<DeploymentSpec> spec = CompleteSpec(event.spec);
  absl::Status status = spec.status();
  if (status.ok()) status = CheckApply(*spec);
  if (!status.ok()) {
    out_.Add(AnswerApply{event.id, status});
    return;
  }
  // Stamped now and stored: a coordinator that restarts with other options must plan as before.
  spec->coordinator_defaults = options_.dispatch;
  out_.Add(LoadModel{event.id, spec->checkpoint});
  PendingApply& apply = applies_[event.id];
  apply.spec = *std::move(spec);
  apply.dry_run = event.dry_run;
}

void Coordinator::On(const ModelProgress& event) {
  const auto it = applies_.find(event.id);
  if (it == applies_.end()) return;
  it->second.read.Add(event.bytes_done, now_);
  it->second.bytes = event.bytes;
}

void Coordinator::On(const ModelLoaded& event) {
  const auto it = applies_.find(event.id);
  if (it == applies_.end()) return;
  PendingApply& apply = it->second;
  absl::Status status = event.facts.status();
  if (status.ok()) status = CheckFacts(*event.facts);
  // Only now is it known which layers the model has.
  if (status.ok()) status = CheckLayersExist(apply.spec, *event.facts);
  if (!status.ok()) {
    out_.Add(AnswerApply{event.id, Annotate(status, absl::StrCat("deployment ", apply.spec.name))});
    applies_.erase(it);
    return;
  }
  const DeploymentController* existing = Find(apply.spec.name);
  apply.record = {
      apply.spec, *event.facts,
      existing != nullptr ? existing->record().grant_key : GrantKey::Random(context_.rng)};
  if (apply.dry_run) {
    out_.Add(AnswerApply{event.id, Preview(apply.record)});
    applies_.erase(it);
  } else if (existing != nullptr && existing->record() == apply.record) {
    // Nothing to store or to plan, so that applying the same file again is free.
    out_.Add(AnswerApply{event.id, ViewOf(*existing, now_)});
    applies_.erase(it);
  } else {
    apply.write = out_.Write(PutDeployment{apply.spec.name, CanonicalBytes(apply.record)});
  }
}

void Coordinator::On(const StoreWritten& event) {
  for (auto& [name, controller] : deployments_) {
    // A write belongs to one deployment's change or to one apply.
    if (controller.OnStoreWritten(event.write, event.status, now_)) return;
  }
  for (auto it = applies_.begin(); it != applies_.end(); ++it) {
    if (it->second.write != event.write) continue;
    // Removed first, so that the name is free for the next apply when this one is answered.
    const PendingApply apply = std::move(it->second);
    const RequestId id = it->first;
    applies_.erase(it);
    if (event.status.ok()) {
      FinishApply(id, apply);
    } else {
      out_.Add(AnswerApply{id, event.status});
    }
    return;
  }
}

void Coordinator::FinishApply(RequestId id, const PendingApply& apply) {
  DeploymentController* controller = Find(apply.spec.name);
  if (controller != nullptr) {
    // The serving epoch goes on until a plan of the new record has replaced it.
    controller->SetRecord(apply.record);
  } else {
    controller =
        &deployments_.try_emplace(apply.spec.name, context_, apply.record, now_).first->second;
  }
  out_.Info("deployment %s: applied, model %s, %d MoE layers of %d experts", apply.spec.name,
            apply.spec.model, apply.record.facts.layers.size(), apply.record.facts.shape.experts);
  // Before the answer, so that it says what came of the deployment with the available workers.
  controller->Evaluate(now_);
  out_.Add(AnswerApply{id, ViewOf(*controller, now_)});
}

// Proposes the plan that `record` would get now, or says why the available workers allow none.
DeploymentView Coordinator::Preview(const DeploymentRecord& record) const {
  // A controller of its own for the view, so that a dry run leaves no trace in the deployment that
  // runs. The plan is that of the running one: it knows what serves and which workers fail.
  const DeploymentController probe(context_, record, now_);
  DeploymentView view = probe.View(now_);
  const auto running = deployments_.find(record.spec.name);
  const bool serves = running != deployments_.end() && running->second.serving().plan() != nullptr;
  const absl::StatusOr<PlanProposal> proposal =
      serves ? running->second.ProposalFor(record, now_) : probe.ProposalFor(record, now_);
  view.problem = proposal.status();
  if (proposal.ok()) {
    view.left_out = proposal->left_out;
    view.warnings = proposal->warnings;
    view.activity = absl::StrFormat("checked; a plan with %d workers is possible (%s)",
                                    proposal->plan.workers.size(), proposal->changes);
    view.proposed = std::make_shared<const Plan>(proposal->plan);
  } else {
    // NOT_READY is the only outcome that other workers could change.
    const bool waits = ReasonOf(proposal.status()) == Reason::kNotReady;
    view.activity = waits ? "checked; the available workers are not sufficient"
                          : "checked; this configuration can never be served";
    if (!waits) return view;
  }
  const std::string missing = MissingWorkers(members_.CandidateIds(), record.spec.min_workers);
  if (!missing.empty()) {
    absl::StrAppend(&view.activity, "; min_workers is not reached: ", missing);
    // A dry run plans with the workers that are connected, but a real first plan would still wait.
    if (!serves) {
      absl::StrAppend(&view.activity, ", and a first plan waits for more up to join_timeout");
    }
  }
  return view;
}

// By name, else by model, else any: where only one deployment exists, a source need not name it.
bool Coordinator::Matches(const OpenSessionRequest& request, const DeploymentSpec& spec) {
  // The name decides; whether the model agrees is checked with the rest of the request.
  if (!request.deployment.empty()) return spec.name == request.deployment;
  return request.model.empty() || spec.model == request.model;
}

absl::StatusOr<DeploymentController*> Coordinator::FindFor(const OpenSessionRequest& request) {
  std::vector<std::string> names;
  for (auto& [name, controller] : deployments_) {
    if (Matches(request, controller.record().spec)) names.push_back(name);
  }
  if (names.size() == 1) return Find(names.front());
  if (names.size() > 1) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
        absl::StrCat("several deployments", request.model.empty() ? " exist" : " serve model ",
                     request.model, "; name one of: ", absl::StrJoin(names, ", ")),
        {{"model", request.model}});
  }
  // Retryable, unlike a name that does not exist: the source may have been started together with
  // the apply.
  for (const auto& [id, apply] : applies_) {
    if (!Matches(request, apply.spec)) continue;
    return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                     absl::StrFormat("deployment %s is being applied; try again", apply.spec.name),
                     {{"deployment", apply.spec.name}});
  }
  return MakeError(
      absl::StatusCode::kNotFound, Reason::kUnknownModel,
      request.deployment.empty()
          ? absl::StrFormat("no deployment serves model \"%s\"; apply one", request.model)
          : absl::StrFormat("there is no deployment \"%s\"; apply it", request.deployment),
      {{"deployment", request.deployment}, {"model", request.model}});
}

absl::StatusOr<SessionGrant> Coordinator::Grant(const OpenSessionRequest& request) {
  SY_ASSIGN_OR_RETURN(DeploymentController * controller, FindFor(request));
  // A session on a plan that lost a worker would fail at its first step.
  SY_RETURN_IF_ERROR(controller->CheckServing());
  const ServingEpoch& serving = controller->serving();
  SY_ASSIGN_OR_RETURN(const OpenSessionRequest complete,
                      CompleteSessionRequest(request, controller->record(), *serving.plan(),
                                             serving.Capabilities()));
  return sessions_.Open(complete, *serving.update(), controller->record().grant_key, now_);
}

void Coordinator::On(const SessionRequested& event) {
  out_.Add(AnswerSession{event.id, Grant(event.request)});
}

void Coordinator::On(const SessionEnded& event) {
  sessions_.Close(event.session);
  out_.Add(AnswerEnd{event.id});
}

void Coordinator::On(const WatchStarted& event) {
  sessions_.Watch(event.watch, event.request, Find(event.request.deployment), now_);
}

void Coordinator::On(const WatchStopped& event) { sessions_.StopWatch(event.watch, now_); }

void Coordinator::On(const Tick& /*event*/) {
  // Leases first: the deployments then plan without the dead workers in this same step.
  const bool expired = members_.Expire(now_);
  if (members_.JudgeProgress(now_) || expired) OnMembersChanged();
  members_.RepeatDials(now_);
  RetireUnclaimed();
  sessions_.Expire(now_);
}

DeploymentView Coordinator::ViewOf(const DeploymentController& controller, TimePoint now) const {
  DeploymentView view = controller.View(now);
  view.sessions = sessions_.CountOf(view.spec.name);
  return view;
}

WorkerView Coordinator::ViewOf(const Member& member, TimePoint now) const {
  WorkerView worker{
      .id = member.id,
      .incarnation = member.incarnation,
      .endpoint = member.endpoint,
      .state = members_.StateOf(member),
      .capabilities = member.capabilities,
      // A step may be late: a lease that is over is shown as 0 until the next tick ends it.
      .lease_left = std::max(Duration::zero(), member.last_message + options_.lease_ttl - now),
      .progress = member.heartbeat.progress,
      .experts = 0,
      .resident = {},
      .problem = member.Problem()};
  for (const auto& [key, hold] : member.holds) {
    if (hold.state == HoldState::kPrepareSent) continue;  // It may have nothing of it so far.
    worker.resident.push_back(
        {key.deployment, key.epoch, hold.hash, hold.state >= HoldState::kCommitted});
  }
  for (const StagingMeters::Metered& metered : member.staging.all()) {
    worker.staging.push_back(switchyard::ViewOf(member.id, metered, now));
  }
  return worker;
}

CoordinatorView Coordinator::View(TimePoint now) const {
  CoordinatorView view;
  for (const auto& [id, member] : members_.members()) {
    view.workers.push_back(ViewOf(member, now));
  }
  for (const auto& [name, controller] : deployments_) {
    view.deployments.push_back(ViewOf(controller, now));
    const Plan* plan = controller.serving().plan();
    if (plan == nullptr) continue;
    for (WorkerView& worker : view.workers) {
      if (const auto ordinal = plan->FindWorker(worker.id)) {
        worker.experts += ExpertsOn(*plan, *ordinal);
      }
    }
  }
  AddApplies(now, &view);
  return view;
}

void Coordinator::AddApplies(TimePoint now, CoordinatorView* view) const {
  for (const auto& [id, apply] : applies_) {
    auto& all = view->deployments;
    auto at = std::lower_bound(
        all.begin(), all.end(), apply.spec.name,
        [](const DeploymentView& one, const std::string& name) { return one.spec.name < name; });
    const bool exists = at != all.end() && at->spec.name == apply.spec.name;
    // A dry run creates nothing.
    if (!exists && apply.dry_run) continue;
    if (!exists) {
      at = all.insert(at, DeploymentView());
      at->spec = apply.spec;
      at->state = DeploymentState::kReading;
    }
    at->reading = ReadingView{.model = apply.spec.model,
                              .checkpoint = apply.spec.checkpoint,
                              .bytes_done = apply.read.count(),
                              .bytes = apply.bytes,
                              .pace = PaceOf(apply.read, apply.bytes, now),
                              .dry_run = apply.dry_run};
    const std::string reading = TextOf(*at->reading);
    if (!exists) {
      at->activity = reading;
    } else {
      absl::StrAppend(&at->activity, "; ", apply.dry_run ? "a dry run is " : "an apply is ",
                      reading);
    }
  }
}

}  // namespace switchyard
