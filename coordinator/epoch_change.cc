#include "coordinator/epoch_change.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/plan_builder.h"
#include "core/base/error.h"

namespace switchyard {
namespace {

// So many workers are named in the one line about a change; the list of Progress has all.
constexpr std::size_t kNamedMax = 8;
constexpr Duration kEveryLine = std::chrono::seconds(10);

}  // namespace

EpochChange EpochChange::Resume(std::shared_ptr<const PlanUpdate> update, TimePoint answers_by) {
  EpochChange change(update->plan.deployment, update->plan.epoch);
  change.update_ = std::move(update);
  // Never kPreparing: the plan is in the store only if every worker had acknowledged it.
  change.BeginCommitting(answers_by);
  return change;
}

void EpochChange::BeginPreparing(std::shared_ptr<const PlanUpdate> update,
                                 std::shared_ptr<const DeploymentRecord> record, GrantKeys keys,
                                 std::string changes, std::uint64_t nonce, TimePoint answers_by) {
  update_ = std::move(update);
  record_ = std::move(record);
  keys_ = std::move(keys);
  changes_ = std::move(changes);
  nonce_ = nonce;
  EnterPhase(ChangePhase::kPreparing, answers_by);
}

void EpochChange::BeginCommitting(TimePoint answers_by) {
  EnterPhase(ChangePhase::kCommitting, answers_by);
}

void EpochChange::EnterPhase(ChangePhase next, TimePoint answers_by) {
  phase_ = next;
  answered_.clear();
  deadline_ = answers_by;
  line_at_ = {};
  nack_ = absl::OkStatus();
  nacked_by_.clear();
}

bool EpochChange::IsLineDue(TimePoint now) {
  if (phase_ != ChangePhase::kPreparing || now < line_at_) return false;
  const bool first = line_at_ == TimePoint{};
  line_at_ = now + kEveryLine;
  return !first;
}

ChangeStep EpochChange::Advance(std::span<const WorkerStanding> workers, TimePoint now) {
  ChangeStep step;
  if (phase_ == ChangePhase::kMarking) {
    // Once the mark has been sent it may be on disk, whatever the store answers, and a coordinator
    // that restarts would serve this epoch. So only the mark itself ends this phase, not the loss
    // of a worker. Without the store no other epoch could be prepared either.
    step.write = write_.value == 0 && now >= retry_at_;
    return step;
  }
  // The store answers, not the workers. A worker that is lost meanwhile is noticed in kCommitting.
  if (phase_ != ChangePhase::kPreparing && phase_ != ChangePhase::kCommitting) return step;

  const HoldState wanted =
      phase_ == ChangePhase::kPreparing ? HoldState::kPrepared : HoldState::kCommitted;
  step.failure = FindFailure(workers, now);
  if (step.failure) return step;
  // Recomputed every time: a worker that came back without an epoch that it had acknowledged gets
  // the request again.
  answered_.clear();
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (workers[i].hold == wanted) {
      answered_.insert(plan().workers[i].id);
    } else if (workers[i].connected) {
      Ask(i, workers[i], &step);
    }
  }
  step.failure = FindFailure(workers, now);
  if (step.failure || !Missing().empty()) return step;
  // The phase changes before the write is sent: a late NACK must not count any more.
  phase_ = phase_ == ChangePhase::kPreparing ? ChangePhase::kStoring : ChangePhase::kMarking;
  step.write = true;
  return step;
}

void EpochChange::Ask(std::size_t index, const WorkerStanding& worker, ChangeStep* step) {
  const WorkerOrdinal ordinal{static_cast<std::int32_t>(index)};
  if (phase_ == ChangePhase::kPreparing) {
    // With anything else in its memory the worker might have no space for this epoch's weights. It
    // gets PREPARE as soon as it has freed that.
    if (!worker.hold && worker.has_room) step->prepare.push_back(ordinal);
    return;
  }
  if (worker.hold == HoldState::kPrepared) {
    step->commit.push_back(ordinal);
  } else if (!worker.hold || worker.hold == HoldState::kPrepareSent) {
    // It cannot be prepared again: the plan is durable, and the others may be serving it.
    const std::string& id = plan().workers[index].id;
    nack_.Update(
        MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                  absl::StrFormat("worker %s came back without epoch %d, which it had prepared", id,
                                  epoch_.value),
                  {{"worker", id}, {"epoch", absl::StrCat(epoch_.value)}}));
    // After a restart it is unknown whether the change had been given up and its workers told so.
    const bool resumed = record_ == nullptr;
    if (!resumed) nacked_by_.insert(id);
  }
}

std::optional<ChangeFailure> EpochChange::FindFailure(std::span<const WorkerStanding> workers,
                                                      TimePoint now) const {
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (!workers[i].lost) continue;
    const std::string& id = plan().workers[i].id;
    return ChangeFailure{
        MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                  absl::StrFormat("worker %s was lost or got stuck in epoch %d of deployment %s",
                                  id, epoch_.value, deployment_),
                  {{"worker", id}, {"deployment", deployment_}}),
        {id},
        /*retry_at_once=*/true};  // The next plan does without it.
  }
  if (!nack_.ok()) {
    return ChangeFailure{
        Annotate(nack_, absl::StrFormat("deployment %s, epoch %d", deployment_, epoch_.value)),
        nacked_by_};
  }
  // A lost worker and a refusal are reported before silence, since they say more.
  if (now < deadline_) return std::nullopt;
  // All that were asked get a strike: which one would have answered next is unknown. Not those that
  // were never asked, because they were away or had no room.
  const HoldState wanted =
      phase_ == ChangePhase::kPreparing ? HoldState::kPrepared : HoldState::kCommitted;
  std::set<std::string> silent;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    if (workers[i].hold && workers[i].hold != wanted) silent.insert(plan().workers[i].id);
  }
  return ChangeFailure{
      MakeError(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady,
                absl::StrFormat("deployment %s, epoch %d: no answer from %s in time", deployment_,
                                epoch_.value, absl::StrJoin(Missing(), ", ")),
                {{"deployment", deployment_}}),
      std::move(silent)};
}

StoreWrite EpochChange::WriteToSend() const {
  switch (phase_) {
    case ChangePhase::kReserving:
      return ReserveEpoch{deployment_, epoch_};
    case ChangePhase::kMarking:
      return MarkServing{deployment_, epoch_, record_ == nullptr ? 0 : record_->revision};
    case ChangePhase::kStoring:
    case ChangePhase::kPreparing:
    case ChangePhase::kCommitting:
      break;
  }
  // The bytes that the hash was computed from, so that recovery can check the one against the
  // other.
  return CommitPlan{deployment_, epoch_, update_->hash, CanonicalBytes(plan())};
}

bool EpochChange::OnWriteDone(WriteId write) {
  if (write_ != write) return false;
  write_ = {};
  return true;
}

// A worker that left the plan, or an earlier process of one that is in it, may still answer.
bool EpochChange::Involves(const std::string& worker, const Incarnation& incarnation) const {
  return std::any_of(plan().workers.begin(), plan().workers.end(), [&](const PlanWorker& member) {
    return member.id == worker && member.incarnation == incarnation;
  });
}

bool EpochChange::Accepts(const std::string& worker, const Incarnation& incarnation,
                          const PrepareAck& ack) const {
  // The nonce as well as the hash: after the store was lost, the same plan may be proposed again
  // under the same number, and a late answer to the first attempt says nothing about the second.
  return phase_ == ChangePhase::kPreparing && ack.epoch == epoch_ && ack.nonce == nonce_ &&
         ack.hash == update_->hash && Involves(worker, incarnation);
}

bool EpochChange::Accepts(const std::string& worker, const Incarnation& incarnation,
                          const CommitAck& ack) const {
  return phase_ == ChangePhase::kCommitting && ack.epoch == epoch_ && ack.hash == update_->hash &&
         Involves(worker, incarnation);
}

bool EpochChange::OnPrepareNack(const std::string& worker, const Incarnation& incarnation,
                                const PrepareNack& nack) {
  // A refusal names no hash: the worker may have refused because the hash was wrong.
  if (phase_ != ChangePhase::kPreparing || nack.epoch != epoch_ || nack.nonce != nonce_ ||
      !Involves(worker, incarnation)) {
    return false;
  }
  AddNack(worker, nack.error);
  return true;
}

bool EpochChange::OnCommitNack(const std::string& worker, const Incarnation& incarnation,
                               const CommitNack& nack) {
  if (phase_ != ChangePhase::kCommitting || nack.epoch != epoch_ ||
      !Involves(worker, incarnation)) {
    return false;
  }
  AddNack(worker, nack.error);
  return true;
}

void EpochChange::AddNack(const std::string& worker, const absl::Status& error) {
  // The first refusal is reported: later ones are often consequences.
  nack_.Update(WithMetadata(Annotate(error, absl::StrCat("worker ", worker)), "worker", worker));
  // A worker without room does nothing wrong: the plan was.
  if (ReasonOf(error) != Reason::kOutOfMemory) nacked_by_.insert(worker);
}

Prepare EpochChange::PrepareFor(WorkerOrdinal ordinal) const {
  Prepare prepare = switchyard::PrepareFor(plan(), update_->hash, *record_, ordinal);
  prepare.nonce = nonce_;
  prepare.grant_keys = keys_;
  return prepare;
}

std::vector<std::string> EpochChange::Missing() const {
  std::vector<std::string> missing;
  for (const PlanWorker& worker : plan().workers) {
    if (!answered_.contains(worker.id)) missing.push_back(worker.id);
  }
  return missing;
}

std::vector<StagingView> EpochChange::Progress(std::span<const WorkerStanding> workers,
                                               TimePoint now) const {
  std::vector<StagingView> progress;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    progress.push_back(ProgressOf(i, workers[i], now));
  }
  return progress;
}

StagingView EpochChange::ProgressOf(std::size_t index, const WorkerStanding& worker,
                                    TimePoint now) const {
  StagingView view;
  view.worker = plan().workers[index].id;
  view.progress.deployment = deployment_;
  view.progress.epoch = epoch_;
  const StagingMeters::Metered* metered =
      worker.staging == nullptr ? nullptr : worker.staging->Find(key());
  if (metered != nullptr) view = ViewOf(view.worker, *metered, now);
  // Its acknowledgements count: its reports may be behind them.
  if (worker.hold >= HoldState::kCommitted) {
    view.step = StagingStep::kCommitted;
  } else if (worker.hold >= HoldState::kPrepared) {
    view.step = StagingStep::kPrepared;
  } else if (!worker.connected) {
    view.step = StagingStep::kWaiting;
    view.waits_for = "disconnected";
  } else if (!worker.hold) {
    view.step = StagingStep::kWaiting;
    if (worker.to_free) view.waits_for = absl::StrCat("has to free epoch ", worker.to_free->value);
  } else if (metered != nullptr) {
    // Also with every expert: its tables and its scratch follow.
    view.step = StagingStep::kLoading;
  } else {
    view.step = StagingStep::kAsked;
    const auto* other = worker.staging == nullptr ? nullptr : worker.staging->Loading();
    if (other != nullptr) {
      view.waits_for = absl::StrCat("it loads epoch ", other->report.epoch.value, " of ",
                                    other->report.deployment, " first");
    }
  }
  return view;
}

// One line for the operator: the phase, and whose answer is missing, which is where to look when a
// change takes long.
std::string EpochChange::Describe(std::span<const StagingView> progress) const {
  const auto waiting = [this, progress] {
    std::vector<std::string> names = Missing();
    const std::size_t more = names.size() - std::min(names.size(), kNamedMax);
    names.resize(names.size() - more);
    for (std::string& name : names) {
      const auto at =
          std::find_if(progress.begin(), progress.end(),
                       [&name](const StagingView& view) { return view.worker == name; });
      if (at == progress.end()) continue;
      // Every worker that has not committed is prepared, unless something is wrong.
      if (phase_ == ChangePhase::kCommitting && at->waits_for.empty()) continue;
      absl::StrAppend(&name, " (", TextOf(*at), ")");
    }
    return absl::StrCat("waiting for ", absl::StrJoin(names, ", "),
                        more > 0 ? absl::StrCat(" and ", more, " more") : "");
  };
  const std::string number = absl::StrCat("epoch ", epoch_.value);
  switch (phase_) {
    case ChangePhase::kReserving:
      return absl::StrCat("reserving the number of ", number);
    case ChangePhase::kPreparing:
      return absl::StrCat("preparing ", number, " (", changes_, "): ", waiting());
    case ChangePhase::kStoring:
      return absl::StrCat("storing ", number);
    case ChangePhase::kCommitting:
      return absl::StrCat("committing ", number, ": ", waiting());
    case ChangePhase::kMarking:
      return absl::StrCat("storing that ", number, " serves");
  }
  return number;
}

}  // namespace switchyard
