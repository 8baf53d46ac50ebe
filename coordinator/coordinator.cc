#include "coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/config_planner.h"
#include "coordinator/session_request.h"
#include "coordinator/spec/deployment_errors.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::string_view ReasonFor(WorkerDuty duty) {
  if (duty == WorkerDuty::kServe) return "Uncordoned";
  return duty == WorkerDuty::kCordoned ? "Cordoned" : "Draining";
}

}  // namespace

Coordinator::Coordinator(CoordinatorOptions options, const PlacementPolicy* placement, Rng* rng,
                         RecoveredState stored, TimePoint now)
    : options_(std::move(options)),
      out_(options_.journal_entries),
      members_(&options_, &out_),
      sessions_(&options_, rng, &out_, now),
      context_{&options_, &members_, placement, &memory_, rng, &out_, &times_},
      started_at_(now),
      now_(now),
      load_({}, now),
      deletions_(&options_, &deployments_, &sessions_, &memory_, &out_),
      duties_(&members_, &deployments_, &out_),
      applies_(&context_, &deployments_, &deletions_, &sessions_) {
  members_.SetDuties(std::move(stored.duties));
  // Nothing is sent to workers here: they have to register first, and the store is read already.
  for (RecoveredDeployment& one : stored.deployments) {
    const std::string name = one.record.spec.name;
    // The outcome of the write does not matter: after a failure the next start does it again. It
    // makes another key then, and the workers report this one.
    if (const auto upgraded = Upgrade(&one, rng)) out_.Write(*upgraded);
    deployments_.try_emplace(name, context_, std::move(one), now);
  }
  deletions_.Resume(stored.deleted_high_water, now);
  applies_.Resume(stored.applies, now);
}

std::vector<Effect> Coordinator::Step(const Event& event, TimePoint now, WallTime wall_time) {
  out_.SetWallTime(wall_time);
  wall_time_ = wall_time;
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
  if (deletions_.Advance(now_)) OnMembersChanged();
  ReleaseLeavers();
  load_.KeepOnly([this](const std::string& name) { return deployments_.count(name) > 0; });
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
    return deployments_.contains(deployment) || applies_.IsRunning(deployment);
  };
  for (auto& [id, member] : members_.members()) {
    if (!member.connected()) continue;
    for (auto& [key, hold] : member.holds) {
      if (hold.state == HoldState::kRetireSent || claimed(key.deployment)) continue;
      out_.OfWorker(id, "EpochUnclaimed")
          .Warn("holds epoch %d of deployment %s, which does not exist here: it is retired",
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
  if (auto* controller = Find(ack.deployment)) {
    controller->OnPrepareAck(member, ack);
  } else {
    // The deployment was deleted while the worker, perhaps on another stream, loaded its weights.
    members_.Send(member, Abort{ack.deployment, ack.epoch});
  }
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
  for (const LoadReport& report : heartbeat.load) AddLoad(member, report);
  if (!heartbeat.times.empty()) AddTimes(member, heartbeat);
}

// Only what is served is shown, and only by those who serve it: a report bounds no memory itself.
std::optional<LoadShape> Coordinator::ShapeServedBy(const Member& member,
                                                    const DeploymentController& controller) {
  const Plan* plan = controller.serving().plan();
  if (plan == nullptr || !plan->FindWorker(member.id)) return std::nullopt;
  LoadShape shape{.layers = {}, .experts = plan->shape.experts};
  for (const LayerPlacement& layer : plan->layers) shape.layers.push_back(layer.layer);
  return shape;
}

void Coordinator::AddLoad(const Member& member, const LoadReport& report) {
  const DeploymentController* controller = Find(report.deployment);
  if (controller == nullptr) return;
  const std::optional<LoadShape> shape = ShapeServedBy(member, *controller);
  if (shape) load_.Add(*shape, member.id, report, now_, wall_time_);
}

// The times are of the whole worker. They are shown with the deployments whose rows it served;
// where no rows are counted, as on GPUs in lockstep, with all that it may have served.
void Coordinator::AddTimes(const Member& member, const Heartbeat& heartbeat) {
  for (const auto& [name, controller] : deployments_) {
    const bool has_rows =
        std::any_of(heartbeat.load.begin(), heartbeat.load.end(),
                    [&name = name](const LoadReport& report) { return report.deployment == name; });
    if (!has_rows && !heartbeat.load.empty()) continue;
    const std::optional<LoadShape> shape = ShapeServedBy(member, controller);
    if (shape) load_.AddTimes(name, *shape, member.id, heartbeat.times, now_, wall_time_);
  }
}

void Coordinator::OnMessage(Member& member, const Leave& /*leave*/) {
  // A repetition must not restart the time in which further leaves share one epoch.
  if (std::exchange(member.leaving, true)) return;
  out_.OfWorker(member.id, "Leaving").Info("asks to leave");
  for (auto& [name, controller] : deployments_) controller.OnLeaveRequested(now_);
}

void Coordinator::OnMessage(Member& /*member*/, const Register& /*request*/) {}  // Handled before.

void Coordinator::On(const ApplyRequested& event) { applies_.On(event, now_); }

void Coordinator::On(const RollbackRequested& event) { applies_.On(event, now_); }

void Coordinator::On(const ModelChecked& event) { applies_.On(event, now_); }

void Coordinator::On(const ModelProgress& event) { applies_.On(event, now_); }

void Coordinator::On(const ModelLoaded& event) { applies_.On(event, now_); }

void Coordinator::On(const DeleteRequested& event) {
  const bool canceled = applies_.Cancel(event.deployment);
  if (applies_.IsRunning(event.deployment)) {
    out_.Add(AnswerDeployment{event.id, DeploymentBusy(event.deployment, "being applied")});
  } else if (DeploymentController* controller = Find(event.deployment)) {
    deletions_.Request(event, *controller, now_);
  } else if (canceled) {
    DeploymentView gone;
    gone.spec.name = event.deployment;
    gone.state = DeploymentState::kDeleting;
    out_.Add(AnswerDeployment{event.id, std::move(gone)});
  } else {
    out_.Add(AnswerDeployment{event.id, NoDeployment(event.deployment)});
  }
}

void Coordinator::On(const DutyRequested& event) {
  const absl::Status status = duties_.Request(event, now_);
  if (!status.ok()) out_.Add(AnswerDuty{event.id, status});
}

void Coordinator::FinishDuty(const Duties::Change& change, const absl::Status& status) {
  if (!status.ok()) {
    out_.Add(AnswerDuty{change.request, status});
    return;
  }
  members_.SetDuty(change.worker, change.duty);
  out_.OfWorker(change.worker, ReasonFor(change.duty))
      .Info("has the duty %s", WorkerDutyName(change.duty));
  for (auto& [name, controller] : deployments_) {
    // As after a leave: several drains in a row share one epoch.
    if (change.duty == WorkerDuty::kDraining) {
      controller.OnLeaveRequested(now_);
    } else {
      controller.OnMembersChanged(now_);
    }
  }
  DutyView view{{}, change.warnings};
  const auto it = members_.members().find(change.worker);
  if (it != members_.members().end()) view.worker = ViewOf(it->second, now_);
  out_.Add(AnswerDuty{change.request, std::move(view)});
}

void Coordinator::On(const StoreWritten& event) {
  for (auto& [name, controller] : deployments_) {
    // A write belongs to one deployment's change or to one apply.
    if (controller.OnStoreWritten(event.write, event.status, now_)) return;
  }
  if (deletions_.OnStoreWritten(event.write, event.status, now_)) return;
  if (const auto change = duties_.TakeWritten(event.write)) {
    return FinishDuty(*change, event.status);
  }
  applies_.OnStoreWritten(event.write, event.status, now_);
}

// By name, else by model, else any: where only one deployment exists, a source need not name it.
bool Coordinator::Matches(const SessionRequested& event, const DeploymentSpec& spec) {
  const OpenSessionRequest& request = event.request;
  if (event.tenant != nullptr && !event.tenant->MayUse(spec.model)) return false;
  // The name decides; whether the model agrees is checked with the rest of the request.
  if (!request.deployment.empty()) return spec.name == request.deployment;
  return request.model.empty() || spec.model == request.model;
}

absl::StatusOr<DeploymentController*> Coordinator::FindFor(const SessionRequested& event) {
  const OpenSessionRequest& request = event.request;
  std::vector<std::string> names;
  std::vector<std::string> of_phase;
  for (auto& [name, controller] : deployments_) {
    const DeploymentSpec& spec = controller.planned().spec;
    if (!Matches(event, spec) || controller.deleting()) continue;
    names.push_back(name);
    if (spec.Serves(request.phase)) of_phase.push_back(name);
  }
  if (names.size() == 1) return Find(names.front());
  // A model may have a deployment for each phase, on pools of their own.
  if (of_phase.size() == 1) return Find(of_phase.front());
  if (names.size() > 1) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
        absl::StrCat("several deployments", request.model.empty() ? " exist" : " serve model ",
                     request.model, "; name one of: ", absl::StrJoin(names, ", ")),
        {{"model", request.model}});
  }
  // Retryable, unlike a name that does not exist: the source may have been started together with
  // the apply.
  const std::string coming =
      applies_.Find([&](const DeploymentSpec& spec) { return Matches(event, spec); });
  if (!coming.empty()) return DeploymentBusy(coming, "being applied");
  DeploymentController* const named = Find(request.deployment);
  if (named != nullptr && deletions_.Has(request.deployment) &&
      Matches(event, named->planned().spec)) {
    return DeploymentLeaves(request.deployment);
  }
  if (!request.deployment.empty()) return NoDeployment(request.deployment);
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel,
                   absl::StrFormat("no deployment serves model \"%s\"; apply one", request.model),
                   {{"model", request.model}});
}

// A worker of a release that does not would refuse the session, now or once it joins.
bool Coordinator::EveryWorkerChecksOpeners() const {
  return std::all_of(members_.members().begin(), members_.members().end(),
                     [](const auto& entry) { return entry.second.checks_opener; });
}

absl::StatusOr<SessionGrant> Coordinator::Grant(const SessionRequested& event) {
  const OpenSessionRequest& request = event.request;
  SY_ASSIGN_OR_RETURN(DeploymentController * controller, FindFor(event));
  // A session on a plan that lost a worker would fail at its first step.
  SY_RETURN_IF_ERROR(controller->CheckServing());
  const ServingEpoch& serving = controller->serving();
  // While a deployment changes its model, the plan that serves is of the one before.
  if (event.tenant != nullptr && !event.tenant->MayUse(serving.plan()->model)) {
    return DeploymentBusy(serving.plan()->deployment, "being changed");
  }
  const std::string obstacle = sessions_.ObstacleOf(serving.plan()->deployment, request, now_);
  SY_ASSIGN_OR_RETURN(const CompleteSession complete,
                      CompleteSessionRequest(request, controller->planned(), *serving.plan(),
                                             serving.Capabilities(), obstacle));
  const absl::string_view named = EveryWorkerChecksOpeners() ? request.caller : absl::string_view();
  const SessionTable::Opener opener{.named = named, .tenant = event.tenant.get()};
  return sessions_.Open(complete, opener, *serving.update(), controller->record().grant_key, now_);
}

void Coordinator::On(const SessionRequested& event) {
  out_.Add(AnswerSession{event.id, Grant(event)});
}

void Coordinator::On(const SessionEnded& event) {
  out_.Add(AnswerEnd{event.id, sessions_.Close(event.session, event.caller)});
}

void Coordinator::On(const WatchStarted& event) {
  const DeploymentController* deployment = Find(event.request.deployment);
  // Its sessions have ended: one that dials again must not be taken over by its successor.
  if (deployment != nullptr && deployment->freed()) deployment = nullptr;
  sessions_.Watch(event, deployment, now_);
}

void Coordinator::On(const WatchStopped& event) { sessions_.StopWatch(event.watch, now_); }

void Coordinator::On(const Tick& /*event*/) {
  // Leases first: the deployments then plan without the dead workers in this same step.
  const bool expired = members_.Expire(now_);
  if (members_.JudgeProgress(now_) || expired) OnMembersChanged();
  members_.RepeatDials(now_);
  RetireUnclaimed();
  sessions_.Expire(now_);
  applies_.OnTick(now_);
}

DeploymentView Coordinator::ViewOf(const DeploymentController& controller, TimePoint now) const {
  DeploymentView view = controller.View(now);
  view.sessions = sessions_.CountOf(view.spec.name);
  deletions_.AddTo(&view, now);
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
      .problem = member.Problem(),
      .pool = member.pool,
      .release = member.release};
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
  applies_.AddTo(&view, now);
  view.times = times_;
  return view;
}

}  // namespace switchyard
