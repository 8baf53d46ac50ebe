#include "coordinator/deployment_controller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "coordinator/config_planner.h"
#include "coordinator/plan_proposal.h"
#include "coordinator/refusal.h"
#include "coordinator/replan_situation.h"
#include "core/base/amount_text.h"
#include "core/base/error.h"

namespace switchyard {

DeploymentController::DeploymentController(ControllerContext context, DeploymentRecord record,
                                           Revisions kept, Epoch high_water, TimePoint now)
    : context_(context),
      applied_(std::move(record), std::move(kept), Epoch{}),
      high_water_(high_water),
      serving_(context.members, nullptr, nullptr, this->record().facts.ExpertBytes()),
      drops_(context.options, context.members, name()),
      former_(context.options->former_share_kept),
      gate_(context.options, now),
      quarantine_(context.options),
      retry_(context.options) {
  // Without its store, this coordinator may have been told what they hold before it had a record.
  for (const auto& [id, member] : context.members->members()) NoteCommitted(member);
  CheckRecord();
}

DeploymentController::DeploymentController(ControllerContext context, RecoveredDeployment stored,
                                           TimePoint now)
    : context_(context),
      applied_(std::move(stored.record), std::move(stored.revisions),
               stored.serving == nullptr ? Epoch{} : stored.serving->plan.epoch),
      high_water_(stored.high_water),
      serving_(context.members, std::move(stored.serving), std::move(stored.served_before),
               applied_.ServedFacts().ExpertBytes()),
      drops_(context.options, context.members, name()),
      former_(context.options->former_share_kept),
      gate_(context.options, now),
      quarantine_(context.options),
      retry_(context.options) {
  gate_.ExpectWorkersOf(serving_.update().get());
  gate_.ExpectWorkersOf(stored.committed.get());
  if (stored.committed != nullptr) {
    // COMMIT may have been sent before the restart. The workers report on their return who has it,
    // so that the change goes on where it was; the deadline leaves them the time to return.
    change_began_ = now;
    change_ =
        EpochChange::Resume(std::move(stored.committed),
                            now + record().spec.join_timeout + context_.options->commit_timeout);
  }
  PromiseMemory();
  CheckRecord();
}

void DeploymentController::SetRecord(DeploymentRecord record, Revisions kept) {
  applied_.Set(std::move(record), std::move(kept));
  dirty_ = true;
  // The delay belongs to the old record's failures; an operator's correction is tried at once.
  retry_.Reset();
  CheckRecord();
}

void DeploymentController::StopPlanning() {
  stopped_ = true;
  // DropUnwanted makes its workers drop it; but what may be marked already serves.
  if (change_ && change_->phase() != ChangePhase::kMarking) change_.reset();
  PromiseMemory();
}

void DeploymentController::CheckRecord() {
  status_.SetRecord(CheckServable(record()));
  applied_.ChoosePlanned(!status_.refusal().ok());
  warnings_.clear();
}

void DeploymentController::OnJoined(const Member& member, TimePoint now) {
  gate_.OnJoined(member.id, now);
  NoteCommitted(member);
  OnMembersChanged(now);
}

void DeploymentController::NoteCommitted(const Member& member) {
  for (const auto& [key, hold] : member.holds) {
    if (key.deployment != name() || hold.state != HoldState::kCommitted) continue;
    serving_.NoteCommitted(key.epoch, hold.hash, member.KeysOf(name()));
    // Also after the worker has let it go: a source that uses it takes only a higher one (I10).
    if (key.epoch <= kHeldEpochMax) high_water_ = std::max(high_water_, key.epoch);
  }
}

void DeploymentController::OnLeaveRequested(TimePoint now) {
  gate_.OnLeaveRequested(now);
  OnMembersChanged(now);
}

void DeploymentController::OnMembersChanged(TimePoint now) {
  dirty_ = true;
  retry_.SkipDelay();  // The delay was for a set of workers that is no longer the one there is.
  quarantine_.ForgetOld(now);
}

void DeploymentController::OnPrepareAck(Member& member, const PrepareAck& ack) {
  if (change_ && change_->Accepts(member.id, member.incarnation, ack)) {
    member.holds[change_->key()] = {change_->update()->hash, HoldState::kPrepared};
    return;
  }
  // Staged for an attempt that is over, perhaps before the worker's stream broke. It is recorded,
  // so that DropUnwanted aborts it; what is known about this number already is newer.
  member.holds.try_emplace({ack.deployment, ack.epoch}, Hold{ack.hash, HoldState::kPrepared});
}

void DeploymentController::OnPrepareNack(Member& member, const PrepareNack& nack) {
  if (change_) change_->OnPrepareNack(member.id, member.incarnation, nack);
}

void DeploymentController::OnCommitAck(Member& member, const CommitAck& ack) {
  if (change_ && change_->Accepts(member.id, member.incarnation, ack)) {
    member.holds[change_->key()] = {ack.hash, HoldState::kCommitted};
  }
}

void DeploymentController::OnCommitNack(Member& member, const CommitNack& nack) {
  if (change_ && change_->OnCommitNack(member.id, member.incarnation, nack)) {
    // It refused to activate the epoch but may still hold it, staged: ABORT makes it drop that.
    member.holds[change_->key()].state = HoldState::kPrepared;
  }
}

bool DeploymentController::OnStoreWritten(WriteId write, const absl::Status& status,
                                          TimePoint now) {
  // The outcome of a write no longer matters once its change was given up.
  if (!change_ || !change_->OnWriteDone(write)) return false;
  OnChangeWritten(status, now);
  return true;
}

void DeploymentController::Evaluate(TimePoint now) {
  if (quarantine_.EndExclusions(now)) dirty_ = true;
  if (gate_.EndExpectations(record().spec.join_timeout, now)) dirty_ = true;
  if (free_) return drops_.DropAll(now);
  if (EndFormer(now)) return;
  // Before the change advances: a worker gets ABORT for an old attempt before PREPARE for the new
  // one, so that the two never share its memory.
  DropUnwanted(now);
  if (change_) AdvanceChange(now);
  // Again when that ended the change, so that its workers need not wait for the next event.
  if (!change_) DropUnwanted(now);
  if (!change_ && dirty_ && !stopped_ && retry_.IsDue(now)) MaybeReplan(now);
}

EpochRule DeploymentController::Rule() const {
  return {name(), serving_.update().get(), change_ ? change_->update().get() : nullptr,
          serving_.former()};
}

bool DeploymentController::EndFormer(TimePoint now) {
  const std::string why = keeps_former() ? serving_.WhyEndFormer(gate_, now) : "";
  if (why.empty()) return false;
  context_.out->OfEpoch(name(), serving_.former()->plan.epoch, "FormerModelEnded")
      .Info("serves a former model, which ends: %s", why);
  announced_ = serving_.EndFormer();
  PromiseMemory();
  return true;
}

void DeploymentController::DropUnwanted(TimePoint now) {
  // No epoch can replace a serving one that lacks a worker while steps on an older one run.
  const bool urgent = serving_.NeedsReplacing(gate_);
  const bool waits = !urgent && serving_.plan() != nullptr;
  drops_.DropUnwanted(
      Rule(), urgent, [&](Epoch epoch) { return waits && gate_.AwaitsSourcesOf(epoch, now); }, now);
}

void DeploymentController::MaybeReplan(TimePoint now) {
  // The record first, each time: workers that can serve it may have come.
  applied_.ChoosePlanned(!status_.refusal().ok());
  if (!status_.refusal().ok() && applied_.plans_record()) return SetNoPlan(status_.refusal());
  std::string wait = ReasonToWait(now);
  if (!wait.empty()) {
    status_.SetActivity(keeps_former() ? serving_.DescribeFormer(now) : std::move(wait));
    return;  // Still dirty: the next Evaluate asks again.
  }
  absl::StatusOr<PlanProposal> proposal = ProposalFor(planned(), now);
  if (IsRefusal(proposal.status()) && applied_.plans_record()) {
    SetNoPlan(proposal.status());
    applied_.ChoosePlanned(/*refused=*/true);
    if (applied_.plans_record()) return;
    proposal = ProposalFor(planned(), now);
  }
  if (!proposal.ok()) return SetNoPlan(proposal.status());
  dirty_ = false;
  left_out_ = std::move(proposal->left_out);
  LogWarnings(proposal->warnings);
  warnings_ = std::move(proposal->warnings);
  if (serving_.IsSameAs(proposal->plan)) {
    NoteServed();
  } else {
    StartChange(now);
  }
}

void DeploymentController::NoteServed() {
  const Epoch epoch = serving_.plan()->epoch;
  status_.SetServing(epoch, applied_.plans_record());
  const std::uint64_t revision = planned().revision;
  // Nothing waits for it: without it, the next start finds out again.
  if (applied_.SetServed(revision, epoch)) {
    context_.out->Write(MarkServing{name(), epoch, revision});
  }
}

// No plan is possible until the record or the members change, and both make it dirty again.
void DeploymentController::SetNoPlan(const absl::Status& why) {
  dirty_ = false;
  status_.SetNoPlan(why, IsRefusal(why), applied_.plans_record());
  if (status_.refused() && !status_.TakeRefusalNews()) return;
  context_.out->OfDeployment(name(), status_.refused() ? "Refused" : "NoPlan")
      .Warn("no plan: %s", why.message());
}

// Once in the life of the process (R17): every re-plan would repeat them.
void DeploymentController::LogWarnings(const std::vector<Warning>& warnings) {
  for (const Warning& warning : warnings) {
    context_.out->WarnOnce(WarningName(warning.id),
                           absl::StrCat("deployment ", name(), ": ", warning.text));
  }
}

std::string DeploymentController::ReasonToWait(TimePoint now) {
  // Taken as a whole, also where one part of it decides: the gate keeps times that depend on it.
  const ReplanSituation situation =
      LookAtMembers(*context_.members, serving_, Rule(), planned(), quarantine_, now);
  std::string wait = gate_.ReasonToWait(planned().spec, situation.gate, now);
  if (!wait.empty() && !situation.gate.serving_worker_present) wait += situation.unused;
  return wait;
}

absl::Status DeploymentController::CheckSuits(const std::string& worker) const {
  const Member& member = context_.members->members().at(worker);
  if (!IsInPools(planned().spec.pools, member.pool)) {
    return absl::FailedPreconditionError("is of another pool");
  }
  return CheckWorkerSuits(planned().facts, member.capabilities);
}

absl::StatusOr<PlanProposal> DeploymentController::ProposalFor(const DeploymentRecord& record,
                                                               TimePoint now) const {
  const auto candidates =
      CandidatesFor(record, serving_.Weights(), former_, *context_.members, *context_.memory, now);
  absl::StatusOr<PlanProposal> proposal =
      ProposePlan(record, candidates, quarantine_, *context_.placement, now);
  if (!proposal.ok()) return proposal;
  const auto way_out = [this](const PlanWorker& worker) {
    const Member* member = std::as_const(*context_.members).Find(worker);
    return std::string(member == nullptr ? "is gone" : member->WayOut());
  };
  proposal->changes = ChangesOf(serving_.plan(), proposal->plan, way_out);
  const std::vector<std::string> unusable =
      context_.members->Problems(serving_.plan(), record.spec.pools);
  proposal->left_out.insert(proposal->left_out.end(), unusable.begin(), unusable.end());
  return proposal;
}

Epoch DeploymentController::NextEpoch() const {
  // A coordinator whose store was lost learns from its workers which numbers are taken.
  return Epoch{std::max(high_water_, context_.members->HighestHeld(name())).value + 1};
}

void DeploymentController::StartChange(TimePoint now) {
  change_.emplace(name(), NextEpoch());
  change_began_ = now;
  // Even if the write fails: it may be on disk all the same, and a number is used once (I10).
  high_water_ = std::max(high_water_, change_->epoch());
  gate_.OnOwnEpoch(change_->epoch());
  SendChangeWrite();
}

// The number is durable. The plan is made only now, since members may have changed meanwhile.
void DeploymentController::PrepareChange(TimePoint now) {
  std::string wait = ReasonToWait(now);
  absl::StatusOr<PlanProposal> proposal = ProposalFor(planned(), now);
  if (!wait.empty() || !proposal.ok() || serving_.IsSameAs(proposal->plan)) {
    change_.reset();  // The number is lost, which costs nothing.
    dirty_ = true;
    return;
  }
  // The number is part of the hash, so that equal plans of two epochs cannot be confused.
  proposal->plan.epoch = change_->epoch();
  // Policies are exchangeable parts; a worker would compute with a wrong placement.
  if (const absl::Status valid = ValidatePlan(proposal->plan); !valid.ok()) {
    DropChange({.why = Annotate(valid, "placement policy")}, now);
    return;
  }
  dirty_ = false;
  left_out_ = std::move(proposal->left_out);
  LogWarnings(proposal->warnings);
  context_.out->OfEpoch(name(), change_->epoch(), "EpochPreparing")
      .Info("is prepared on %s; %s", CountText(std::ssize(proposal->plan.workers), "worker"),
            proposal->changes);
  const PlanHash hash = HashOf(proposal->plan);
  change_->BeginPreparing(
      std::make_shared<const PlanUpdate>(PlanUpdate{std::move(proposal->plan), hash}),
      applied_.planned(), serving_.KeysWith(record().grant_key), std::move(proposal->changes),
      context_.rng->Next(), now + context_.options->prepare_timeout);
  PromiseMemory();
}

WorkerStanding DeploymentController::StandingOf(const PlanWorker& worker) const {
  WorkerStanding standing;
  const Member* member = context_.members->Find(worker);
  if (member == nullptr) {
    // After a restart a stored worker that has not registered yet is not lost, only late.
    standing.lost = !gate_.Expects(worker.id);
    return standing;
  }
  standing.lost = !member->stuck.empty();  // It may never answer.
  standing.connected = member->connected();
  standing.has_room = Rule().HasRoom(member->holds);
  standing.to_free = Rule().BlockingEpoch(member->holds);
  standing.staging = &member->staging;
  if (const Hold* hold = member->Find(change_->key(), change_->update()->hash)) {
    standing.hold = hold->state;
  }
  return standing;
}

std::vector<WorkerStanding> DeploymentController::Standings() const {
  std::vector<WorkerStanding> workers;
  if (!change_ || change_->update() == nullptr) return workers;
  for (const PlanWorker& worker : change_->plan().workers) workers.push_back(StandingOf(worker));
  return workers;
}

void DeploymentController::AdvanceChange(TimePoint now) {
  if (change_->IsLineDue(now)) {
    context_.out->OfEpoch(name(), change_->epoch())
        .Info("is not ready: %s", change_->Describe(change_->Progress(Standings(), now)));
  }
  // Taken before anything is sent, so that the step is decided on one state of the world.
  ChangeStep step = change_->Advance(Standings(), now);
  const auto member_of = [this](WorkerOrdinal ordinal) -> Member& {
    return *context_.members->Find(
        change_->plan().workers[static_cast<std::size_t>(ordinal.value)]);
  };
  for (const WorkerOrdinal ordinal : step.prepare) {
    Member& member = member_of(ordinal);
    // Noted as sent, so that it is not repeated at every step, and counted as held (I6): the worker
    // may be staging it already.
    member.holds[change_->key()] = {change_->update()->hash, HoldState::kPrepareSent};
    context_.members->Send(member, change_->PrepareFor(ordinal));
  }
  for (const WorkerOrdinal ordinal : step.commit) {
    Member& member = member_of(ordinal);
    member.holds[change_->key()].state = HoldState::kCommitSent;
    context_.members->Send(member, change_->CommitMessage());
  }
  if (step.failure) {
    DropChange(*std::move(step.failure), now);
  } else if (step.write) {
    SendChangeWrite();
  }
}

void DeploymentController::OnChangeWritten(const absl::Status& status, TimePoint now) {
  const bool marking = change_->phase() == ChangePhase::kMarking;
  // Not a failure of the change: every worker has committed, and the mark is repeated until the
  // store takes it.
  if (!status.ok() && marking) {
    status_.SetProblem(status);
    retry_.BackOff(now);
    change_->RetryMarkAt(retry_.due_at());
  } else if (!status.ok()) {
    DropChange({.why = status}, now);
  } else if (marking) {
    Serve(now);
  } else if (change_->phase() == ChangePhase::kReserving) {
    PrepareChange(now);
  } else {
    change_->BeginCommitting(now + context_.options->commit_timeout);
  }
}

void DeploymentController::Serve(TimePoint now) {
  // Only now, with the mark durable, may sources learn of it (I2): a coordinator that restarts
  // would otherwise not know the epoch that they use.
  PlanUpdate update = *change_->update();
  update.lost = serving_.LostWorkers(gate_);
  if (serving_.IsOfAnotherModel(update.plan)) update.former_kept = planned().spec.former_model_kept;
  announced_ = std::make_shared<const PlanUpdate>(std::move(update));
  former_.OnReplaced(serving_.plan(), announced_->plan, now);
  serving_.Replace(announced_, change_->RecordOr(record()).facts.ExpertBytes());
  serving_.KeepFormer(announced_->former_kept, now);
  const std::uint64_t revision = change_->RecordOr(record()).revision;
  applied_.SetServed(change_->record() == nullptr ? 0 : revision, serving_.plan()->epoch);
  change_.reset();
  ++changes_.served;
  context_.times->change_served.Observe(now - change_began_);
  retry_.Reset();
  status_.SetServing(serving_.plan()->epoch, revision == record().revision);
  for (const PlanWorker& worker : serving_.plan()->workers) quarantine_.Clear(worker.id);
  dirty_ = true;  // The members may have changed meanwhile.
  PromiseMemory();
  context_.out->OfEpoch(name(), serving_.plan()->epoch, "EpochServing")
      .Info("serves on %s", CountText(std::ssize(serving_.plan()->workers), "worker"));
}

// Sends nothing to the workers: without the change its epoch is unwanted, and DropUnwanted sends
// ABORT or, where COMMIT was sent, RETIRE.
void DeploymentController::DropChange(const ChangeFailure& failure, TimePoint now) {
  context_.out->OfEpoch(name(), change_->epoch(), "EpochGivenUp")
      .Warn("is given up: %s", failure.why.message());
  status_.SetGivenUp(change_->epoch(), failure.why);
  change_.reset();
  ++changes_.failed;
  context_.times->change_failed.Observe(now - change_began_);
  dirty_ = true;
  retry_.BackOff(now);
  if (failure.retry_at_once) retry_.SkipDelay();
  for (const std::string& id : failure.culprits) {
    quarantine_.Strike(id, std::string(failure.why.message()), now);
  }
  PromiseMemory();
}

// From PREPARE on, so that another deployment does not plan into the same memory.
void DeploymentController::PromiseMemory() {
  // A former model that is kept is where a change would be.
  HeldWeights changing = serving_.FormerWeights();
  if (change_ && change_->update() != nullptr) {
    changing = {&change_->plan(), change_->RecordOr(record()).facts.ExpertBytes()};
  }
  context_.memory->Set(name(), BytesOfBoth(serving_.Weights(), changing));
}

absl::Status DeploymentController::CheckServing() const {
  if (serving_.Holds()) return absl::OkStatus();
  return status_.WhyNotServing(name(), change_ ? change_->Describe() : "");
}

bool DeploymentController::Needs(const Member& member, TimePoint now) const {
  const auto oldest = std::ranges::find_if(
      member.holds, [this](const auto& held) { return held.first.deployment == name(); });
  if (oldest == member.holds.end()) return false;
  // After a restart the others may only not have registered yet.
  if (gate_.AwaitsSourcesOf(oldest->first.epoch, now)) return true;
  // Where no other worker, here or away, could take its experts over, waiting would change nothing.
  return std::ranges::any_of(context_.members->members(), [&](const auto& other) {
    return other.first != member.id && other.second.stays() && CheckSuits(other.first).ok();
  });
}

DeploymentView DeploymentController::View(TimePoint now) const {
  DeploymentView view =
      ViewOf(record(), serving_.update(), serving_.Holds(), applied_.ServedCheckpoint());
  view.current = serving_.Holds() && applied_.served() == record().revision;
  view.revisions = applied_.revisions().list();
  view.served_revision = applied_.served();
  view.pending = change_ ? change_->epoch() : Epoch{};
  view.staging = change_ ? change_->Progress(Standings(), now) : std::vector<StagingView>();
  view.refused = status_.refused();
  view.activity = (view.refused ? "" : ComingText(view)) +
                  (change_ ? change_->Describe(view.staging) : status_.activity());
  view.problem = status_.problem();
  view.left_out = left_out_;
  view.warnings = warnings_;
  view.changes = changes_;
  if (free_) view.activity = absl::StrCat("waiting for worker ", drops_.FirstHeld());
  if (refused()) view.state = DeploymentState::kRefused;
  if (deleting()) view.state = DeploymentState::kDeleting;
  return view;
}

}  // namespace switchyard
