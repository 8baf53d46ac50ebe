// The change of DeploymentController: see the states in epoch_change.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/deployment_controller.h"
#include "core/base/error.h"
#include "core/plan.h"

namespace switchyard {

Epoch DeploymentController::NextEpoch() const {
  Epoch highest = high_water_;
  if (SY_MUTANT(context_.options->mutant, kReuseAbortedEpoch) && serving_ != nullptr) {
    highest = serving_->plan.epoch;
  }
  // A coordinator that lost its store learns from its workers which numbers are taken.
  for (const auto& [id, member] : context_.members->members()) {
    for (const auto& [key, hold] : member.holds) {
      if (key.deployment == name()) highest = std::max(highest, key.epoch);
    }
  }
  return Epoch{highest.value + 1};
}

void DeploymentController::StartChange(TimePoint now) {
  change_.emplace();
  change_->epoch = NextEpoch();
  high_water_ = std::max(high_water_, change_->epoch);  // Whatever becomes of the write.
  change_->write = context_.out->Write(ReserveEpoch{name(), change_->epoch});
  if (SY_MUTANT(context_.options->mutant, kEpochNotReserved)) BeginPreparing(now);
}

void DeploymentController::BeginPreparing(TimePoint now) {
  // The members may have changed while the number was being written.
  std::string wait = WhyWait(now);
  absl::StatusOr<PlanDraft> draft = DraftFor(*record_, now);
  const bool serves_already = draft.ok() && ServingHolds() && [&] {
    draft->plan.epoch = serving_->plan.epoch;
    return draft->plan == serving_->plan;
  }();
  if (!wait.empty() || !draft.ok() || serves_already) {
    change_.reset();
    dirty_ = true;
    return;
  }
  draft->plan.epoch = change_->epoch;
  if (const absl::Status valid = ValidatePlan(draft->plan); !valid.ok()) {
    DropChange({.why = Annotate(valid, "placement policy"), .culprits = {}}, now);
    return;
  }
  dirty_ = false;
  left_out_ = std::move(draft->left_out);
  Tell(draft->warnings);
  const PlanHash hash = HashOf(draft->plan);
  change_->news = std::make_shared<const PlanUpdate>(PlanUpdate{std::move(draft->plan), hash});
  change_->record = record_;
  change_->nonce = context_.rng->Next();
  change_->EnterPhase(ChangePhase::kPreparing, now + context_.options->prepare_timeout);
  PromiseMemory();
  context_.out->Info("deployment %s: preparing epoch %d on %d workers", name(),
                     change_->epoch.value, change_->plan().workers.size());
}

// S and the change are all that a worker may be asked to hold.
bool DeploymentController::HasRoom(const Member& member) const {
  return SY_MUTANT(context_.options->mutant, kPrepareBeforeFree) ||
         std::none_of(member.holds.begin(), member.holds.end(), [this](const auto& entry) {
           const bool foreign = serving_ == nullptr && entry.second.state == HoldState::kCommitted;
           return entry.first.deployment == name() && !foreign &&
                  !IsServing(entry.first, entry.second.hash) &&
                  !IsChanging(entry.first, entry.second.hash);
         });
}

void DeploymentController::AskForPrepare(Member& member, const Hold* hold) {
  if (hold != nullptr || !HasRoom(member)) return;
  const WorkerOrdinal ordinal = change_->plan().FindWorker(member.id).value_or(WorkerOrdinal{-1});
  Prepare prepare = PrepareFor(change_->plan(), change_->news->hash, *change_->record, ordinal);
  prepare.nonce = change_->nonce;
  member.holds[change_->key()] = {change_->news->hash, HoldState::kPrepareSent};
  context_.members->Send(member, std::move(prepare));
}

void DeploymentController::AskForCommit(Member& member, const Hold* hold) {
  if (hold == nullptr || hold->state == HoldState::kPrepareSent) {
    change_->failure.Update(
        MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                  absl::StrFormat("worker %s came back without epoch %d, which it had prepared",
                                  member.id, change_->epoch.value),
                  {{"worker", member.id}, {"epoch", absl::StrCat(change_->epoch.value)}}));
    change_->culprits.insert(member.id);
  } else if (hold->state == HoldState::kPrepared) {
    member.holds[change_->key()].state = HoldState::kCommitSent;
    context_.members->Send(member, Commit{name(), change_->epoch, change_->news->hash});
  }
}

void DeploymentController::OnPrepareAck(Member& member, const PrepareAck& ack) {
  const bool of_this_attempt = change_ && change_->phase == ChangePhase::kPreparing &&
                               ack.epoch == change_->epoch && ack.nonce == change_->nonce &&
                               ack.hash == change_->news->hash;
  const bool counts = of_this_attempt || (SY_MUTANT(context_.options->mutant, kStaleAckCounts) &&
                                          change_ && change_->phase == ChangePhase::kPreparing);
  if (counts && change_->Involves(member.id, member.incarnation)) {
    member.holds[change_->key()] = {change_->news->hash, HoldState::kPrepared};
    return;
  }
  // Staged for an attempt that is over, perhaps one of before the worker's last stream: unless it
  // is what serves or is on its way, Reconcile has it aborted.
  member.holds.try_emplace({ack.deployment, ack.epoch}, Hold{ack.hash, HoldState::kPrepared});
}

void DeploymentController::OnPrepareNack(Member& member, const PrepareNack& nack) {
  if (!change_ || change_->phase != ChangePhase::kPreparing || nack.epoch != change_->epoch ||
      nack.nonce != change_->nonce || !change_->Involves(member.id, member.incarnation)) {
    return;
  }
  change_->failure.Update(
      WithMetadata(Annotate(nack.error, absl::StrCat("worker ", member.id)), "worker", member.id));
  change_->culprits.insert(member.id);
}

void DeploymentController::OnCommitAck(Member& member, const CommitAck& ack) {
  if (!change_ || change_->phase != ChangePhase::kCommitting || ack.epoch != change_->epoch ||
      ack.hash != change_->news->hash || !change_->Involves(member.id, member.incarnation)) {
    return;
  }
  member.holds[change_->key()] = {change_->news->hash, HoldState::kCommitted};
}

void DeploymentController::OnCommitNack(Member& member, const CommitNack& nack) {
  if (!change_ || change_->phase != ChangePhase::kCommitting || nack.epoch != change_->epoch ||
      !change_->Involves(member.id, member.incarnation)) {
    return;
  }
  member.holds[change_->key()].state = HoldState::kPrepared;  // It may hold it all the same.
  change_->failure.Update(
      WithMetadata(Annotate(nack.error, absl::StrCat("worker ", member.id)), "worker", member.id));
  change_->culprits.insert(member.id);
}

bool DeploymentController::OnStoreWritten(WriteId write, const absl::Status& status,
                                          TimePoint now) {
  if (!change_ || change_->write != write) return false;
  change_->write = {};
  switch (change_->phase) {
    case ChangePhase::kReserving:
      if (!status.ok() && !SY_MUTANT(context_.options->mutant, kReuseAbortedEpoch)) {
        DropChange({.why = status, .culprits = {}}, now);
      } else {
        BeginPreparing(now);
      }
      break;
    case ChangePhase::kWriting:
      if (status.ok()) {
        BeginCommitting(now);
      } else {
        DropChange({.why = status, .culprits = {}}, now);
      }
      break;
    case ChangePhase::kMarking:
      if (status.ok()) {
        Serve();
      } else {
        problem_ = status;
        BackOff(now);
        change_->retry_at = not_before_;
      }
      break;
    case ChangePhase::kPreparing:
    case ChangePhase::kCommitting:
      break;  // Nothing is written in these.
  }
  return true;
}

std::optional<DeploymentController::Failure> DeploymentController::FailureOfChange(
    TimePoint now) const {
  for (const PlanWorker& worker : change_->plan().workers) {
    if (!IsLost(worker)) continue;
    return Failure{MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                             absl::StrFormat("worker %s was lost in epoch %d of deployment %s",
                                             worker.id, change_->epoch.value, name()),
                             {{"worker", worker.id}, {"deployment", name()}}),
                   {worker.id},
                   /*at_once=*/true};
  }
  if (!change_->failure.ok()) {
    return Failure{Annotate(change_->failure, absl::StrFormat("deployment %s, epoch %d", name(),
                                                              change_->epoch.value)),
                   change_->culprits};
  }
  if (now < change_->deadline) return std::nullopt;
  const std::vector<std::string> silent = change_->Missing();
  return Failure{
      MakeError(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
                absl::StrFormat("deployment %s, epoch %d: no answer from %s in time", name(),
                                change_->epoch.value, absl::StrJoin(silent, ", ")),
                {{"deployment", name()}}),
      {silent.begin(), silent.end()}};
}

void DeploymentController::Advance(TimePoint now) {
  switch (change_->phase) {
    case ChangePhase::kReserving:
    case ChangePhase::kWriting:
      return;  // The store answers.
    case ChangePhase::kMarking:
      return AdvanceMarking(now);
    case ChangePhase::kPreparing:
    case ChangePhase::kCommitting:
      return AdvanceAsking(now);
  }
}

// Asks every worker of the plan that is there for what it has not given; goes on when all have.
void DeploymentController::AdvanceAsking(TimePoint now) {
  const bool preparing = change_->phase == ChangePhase::kPreparing;
  std::optional<Failure> failure = FailureOfChange(now);
  if (!failure) {
    const HoldState wanted = preparing ? HoldState::kPrepared : HoldState::kCommitted;
    change_->answered.clear();
    for (const PlanWorker& worker : change_->plan().workers) {
      Member* member = context_.members->Find(worker);
      if (member == nullptr) continue;
      const Hold* hold = member->Find(change_->key(), change_->news->hash);
      if (hold != nullptr && hold->state == wanted) {
        change_->answered.insert(member->id);
      } else if (member->connected()) {
        preparing ? AskForPrepare(*member, hold) : AskForCommit(*member, hold);
      }
    }
    failure = FailureOfChange(now);
  }
  if (failure) return DropChange(*std::move(failure), now);
  if (preparing && change_->AllAnswered()) {
    BeginWriting();
    if (SY_MUTANT(context_.options->mutant, kCommitBeforeDurable)) {
      BeginCommitting(now);
      AdvanceAsking(now);
    }
  } else if (!preparing &&
             (change_->AllAnswered() || (SY_MUTANT(context_.options->mutant, kAnnounceEarly) &&
                                         !change_->answered.empty()))) {
    BeginMarking();
  }
}

// Once the mark was asked for it may be on disk, whatever the store says: nothing but the mark
// itself ends this. Without the store no other epoch could be prepared either.
void DeploymentController::AdvanceMarking(TimePoint now) {
  if (change_->write.value == 0 && now >= change_->retry_at) BeginMarking();
}

void DeploymentController::BeginWriting() {
  change_->EnterPhase(ChangePhase::kWriting, {});
  change_->write = context_.out->Write(
      CommitPlan{name(), change_->epoch, change_->news->hash, CanonicalBytes(change_->plan())});
}

void DeploymentController::BeginCommitting(TimePoint now) {
  change_->EnterPhase(ChangePhase::kCommitting, now + context_.options->commit_timeout);
  if (!SY_MUTANT(context_.options->mutant, kRetireEarly) || serving_ == nullptr) return;
  for (const PlanWorker& worker : serving_->plan.workers) {
    if (Member* member = context_.members->Find(worker)) {
      context_.members->Send(*member, switchyard::Retire{name(), serving_->plan.epoch});
    }
  }
}

void DeploymentController::BeginMarking() {
  change_->phase = ChangePhase::kMarking;
  change_->write = context_.out->Write(MarkServing{name(), change_->epoch});
}

void DeploymentController::Serve() {
  served_before_ = serving_;
  serving_ = change_->news;
  news_ = serving_;
  change_.reset();
  failures_ = 0;
  not_before_ = {};
  problem_ = absl::OkStatus();
  activity_ = absl::StrCat("serving epoch ", serving_->plan.epoch.value);
  for (const PlanWorker& worker : serving_->plan.workers) strikes_.erase(worker.id);
  dirty_ = true;  // The members may have changed meanwhile.
  PromiseMemory();
  context_.out->Info("deployment %s: epoch %d serves on %d workers", name(),
                     serving_->plan.epoch.value, serving_->plan.workers.size());
}

void DeploymentController::BackOff(TimePoint now) {
  Duration delay = context_.options->retry_first;
  for (int i = 0; i < failures_ && delay < context_.options->retry_last; ++i) delay *= 2;
  ++failures_;
  not_before_ = now + std::min(delay, context_.options->retry_last);
}

// Reconcile tells the workers: those that prepared get ABORT, those that may have committed RETIRE.
void DeploymentController::DropChange(Failure failure, TimePoint now) {
  context_.out->Warn("deployment %s: epoch %d is given up: %s", name(), change_->epoch.value,
                     failure.why.message());
  activity_ = absl::StrFormat("epoch %d was given up; the next try follows", change_->epoch.value);
  change_.reset();
  dirty_ = true;
  problem_ = std::move(failure.why);
  if (failure.at_once) {
    not_before_ = {};
  } else {
    BackOff(now);
  }
  for (const std::string& id : failure.culprits) {
    Strikes& strikes = strikes_[id];
    ++strikes.count;
    strikes.last_at = now;
    strikes.why = std::string(problem_.message());
    if (strikes.count < 2) continue;
    Duration out = context_.options->quarantine_first;
    for (int i = 2; i < strikes.count && out < context_.options->quarantine_last; ++i) out *= 2;
    strikes.excluded_until = now + std::min(out, context_.options->quarantine_last);
  }
  PromiseMemory();
}

void DeploymentController::PromiseMemory() {
  MemoryLedger::BytesByWorker bytes;
  const auto count = [&](const Plan& plan) {
    for (std::size_t w = 0; w < plan.workers.size(); ++w) {
      const std::int64_t mine = WeightBytesOn(plan, record_->facts.ExpertBytes(),
                                              WorkerOrdinal{static_cast<std::int32_t>(w)});
      std::int64_t& promised = bytes[plan.workers[w].id];
      promised = std::max(promised, mine);  // Epochs share the experts that stay.
    }
  };
  if (serving_ != nullptr) count(serving_->plan);
  if (change_ && change_->news != nullptr) count(change_->plan());
  context_.memory->Set(name(), std::move(bytes));
}

}  // namespace switchyard
