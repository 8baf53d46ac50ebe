#include "coordinator/deployment_controller.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "coordinator/refusal.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Epochs above 0 differ between a draft and a plan of the same content.
bool SameButEpoch(const Plan& draft, const Plan& plan) {
  Plan numbered = draft;
  numbered.epoch = plan.epoch;
  return numbered == plan;
}

}  // namespace

DeploymentController::DeploymentController(ControllerContext context, DeploymentRecord record,
                                           TimePoint now)
    : context_(context),
      record_(std::make_shared<const DeploymentRecord>(std::move(record))),
      started_at_(now) {
  Judge();
}

DeploymentController::DeploymentController(ControllerContext context, RecoveredDeployment stored,
                                           TimePoint now)
    : context_(context),
      record_(std::make_shared<const DeploymentRecord>(std::move(stored.record))),
      high_water_(stored.high_water),
      serving_(std::move(stored.serving)),
      served_before_(std::move(stored.served_before)),
      started_at_(now) {
  const auto expect = [this](const std::shared_ptr<const PlanUpdate>& news) {
    if (news == nullptr) return;
    for (const PlanWorker& worker : news->plan.workers) expected_.insert(worker.id);
  };
  expect(serving_);
  expect(stored.committed);
  if (stored.committed != nullptr) {
    // COMMIT may be out: what workers say on their return tells who has it.
    change_.emplace();
    change_->epoch = stored.committed->plan.epoch;
    change_->news = std::move(stored.committed);
    change_->EnterPhase(ChangePhase::kCommitting,
                        now + record_->spec.join_timeout + context_.options->commit_timeout);
  }
  PromiseMemory();
  Judge();
}

void DeploymentController::SetRecord(DeploymentRecord record) {
  record_ = std::make_shared<const DeploymentRecord>(std::move(record));
  dirty_ = true;
  not_before_ = {};
  failures_ = 0;
  Judge();
}

// Before any worker is asked: whether waiting for workers can help at all.
void DeploymentController::Judge() {
  refusal_ = CheckSomeKindWouldDo(*record_);
  refused_here_ = false;
  warnings_.clear();
  problem_ = refusal_;
  if (!refusal_.ok()) activity_ = kRefusedActivity;
}

void DeploymentController::OnJoined(const Member& member, TimePoint now) {
  expected_.erase(member.id);
  settled_at_ = now + context_.options->join_settle;
  OnMembersChanged(now);
}

void DeploymentController::OnMembersChanged(TimePoint now) {
  dirty_ = true;
  not_before_ = {};
  ForgetOldStrikes(now);
}

void DeploymentController::OnLeaveAsked(TimePoint now) {
  settled_at_ = now + context_.options->join_settle;
  OnMembersChanged(now);
}

void DeploymentController::OnRetireAck(Member& member, const RetireAck& ack) {
  const auto it = member.holds.find({ack.deployment, ack.epoch});
  if (it != member.holds.end() && it->second.state == HoldState::kRetireSent) {
    member.holds.erase(it);
  }
}

void DeploymentController::Evaluate(TimePoint now) {
  for (auto& [id, strikes] : strikes_) {
    if (!strikes.excluded_until || now < *strikes.excluded_until) continue;
    strikes.excluded_until.reset();
    dirty_ = true;
  }
  if (!expected_.empty() && now >= started_at_ + record_->spec.join_timeout) {
    expected_.clear();
    dirty_ = true;
  }
  Reconcile();
  if (change_) Advance(now);
  if (!change_) Reconcile();
  if (!change_ && dirty_ && now >= not_before_) Consider(now);
}

void DeploymentController::Reconcile() {
  for (auto& [id, member] : context_.members->members()) {
    if (member.connected()) ReconcileMember(member);
  }
}

void DeploymentController::ReconcileMember(Member& member) {
  // Before anything serves here, a worker may come with an epoch of a coordinator that lost its
  // store; its sources live on it until something better serves.
  Epoch kept;
  for (const auto& [key, hold] : member.holds) {
    const bool foreign = serving_ == nullptr && key.deployment == name() &&
                         hold.state == HoldState::kCommitted && !IsChanging(key, hold.hash);
    if (foreign) kept = key.epoch;  // Ascending: the highest.
  }
  for (auto it = member.holds.begin(); it != member.holds.end();) {
    auto& [key, hold] = *it;
    const bool belongs = key.deployment != name() || key.epoch == kept ||
                         IsServing(key, hold.hash) || IsChanging(key, hold.hash);
    if (belongs || hold.state == HoldState::kRetireSent) {
      ++it;
    } else if (hold.state == HoldState::kPrepareSent || hold.state == HoldState::kPrepared) {
      if (!SY_MUTANT(context_.options->mutant, kForgetAbort)) {
        context_.members->Send(member, Abort{name(), key.epoch});
      }
      it = member.holds.erase(it);
    } else {
      hold.state = HoldState::kRetireSent;
      context_.members->Send(member, switchyard::Retire{name(), key.epoch});
      ++it;
    }
  }
}

void DeploymentController::Consider(TimePoint now) {
  if (!refusal_.ok()) {
    dirty_ = false;
    problem_ = refusal_;
    activity_ = kRefusedActivity;
    context_.out->Warn("deployment %s: no plan: %s", name(), problem_.message());
    return;
  }
  std::string wait = WhyWait(now);
  if (!wait.empty()) {
    activity_ = std::move(wait);
    return;
  }
  dirty_ = false;
  absl::StatusOr<PlanDraft> draft = DraftFor(*record_, now);
  refused_here_ = IsRefusal(draft.status());
  if (!draft.ok()) {
    problem_ = draft.status();
    activity_ = refused_here_ ? kRefusedActivity : "waiting for workers that can hold the model";
    context_.out->Warn("deployment %s: no plan: %s", name(), problem_.message());
    return;
  }
  left_out_ = std::move(draft->left_out);
  Tell(draft->warnings);
  warnings_ = std::move(draft->warnings);
  if (ServingHolds() && SameButEpoch(draft->plan, serving_->plan)) {
    problem_ = absl::OkStatus();
    activity_ = absl::StrCat("serving epoch ", serving_->plan.epoch.value);
    return;
  }
  StartChange(now);
}

// What a plan's traces have to say; the process says each of it once (R17).
void DeploymentController::Tell(const std::vector<Warning>& warnings) {
  for (const Warning& warning : warnings) {
    context_.out->WarnOnce(WarningName(warning.id),
                           absl::StrCat("deployment ", name(), ": ", warning.text));
  }
}

// Why no change may start now; empty when one may.
std::string DeploymentController::WhyWait(TimePoint now) {
  if (!expected_.empty()) {
    return absl::StrCat("waiting for workers of the stored plan to come back: ",
                        absl::StrJoin(expected_, ", "));
  }
  std::string holders = WhoHoldsOthers();
  if (!holders.empty() && !SY_MUTANT(context_.options->mutant, kPrepareBeforeFree)) return holders;
  bool anyone = false;
  if (serving_ != nullptr) {
    for (const PlanWorker& worker : serving_->plan.workers) {
      const Presence presence = context_.members->PresenceOf(worker);
      if (presence == Presence::kDisconnected) {
        return absl::StrFormat("waiting for worker %s, whose stream ended just now", worker.id);
      }
      anyone = anyone || presence != Presence::kGone;
    }
  }
  if (!anyone) return WhyWaitForFirst(now);
  first_candidate_at_.reset();
  if (ServingHolds() && now < settled_at_) return "waiting for further workers to join or leave";
  return "";
}

// As WhyWait, while nobody serves: `min_workers`, or `join_timeout` from the first that is there.
std::string DeploymentController::WhyWaitForFirst(TimePoint now) {
  if (Candidates().empty()) {
    first_candidate_at_.reset();
  } else if (!first_candidate_at_) {
    first_candidate_at_ = now;
  }
  const std::string missing = MissingWorkers();
  if (missing.empty()) return "";
  if (first_candidate_at_ && now >= *first_candidate_at_ + record_->spec.join_timeout) return "";
  return absl::StrCat("waiting for workers: ", missing);
}

std::string DeploymentController::MissingWorkers() const {
  std::vector<std::string> ids;
  for (const Candidate& candidate : Candidates()) ids.push_back(candidate.worker.id);
  if (static_cast<int>(ids.size()) >= record_->spec.min_workers) return "";
  return absl::StrFormat("%d of %d are there (%s)", ids.size(), record_->spec.min_workers,
                         ids.empty() ? std::string("none") : absl::StrJoin(ids, ", "));
}

// Who still holds an epoch that is not S.
std::string DeploymentController::WhoHoldsOthers() const {
  for (const auto& [id, member] : context_.members->members()) {
    int others = 0;
    Epoch last;
    for (const auto& [key, hold] : member.holds) {
      if (key.deployment != name() || IsServing(key, hold.hash)) continue;
      ++others;
      last = key.epoch;
      const bool foreign = serving_ == nullptr && hold.state == HoldState::kCommitted;
      if (foreign && others == 1) continue;  // takes the place of S
      return absl::StrFormat("waiting for worker %s to free epoch %d", id, last.value);
    }
  }
  return "";
}

std::vector<Candidate> DeploymentController::Candidates() const {
  std::vector<Candidate> all;
  for (const auto& [id, member] : context_.members->members()) {
    if (!member.connected() || member.leaving) continue;
    Candidate candidate;
    candidate.worker = {id, member.incarnation, member.endpoint, member.capabilities.device,
                        member.capabilities.kernel_family};
    candidate.capabilities = member.capabilities;
    candidate.used_bytes = context_.memory->UsedByOthers(name(), id);
    candidate.serves = serving_ != nullptr && serving_->plan.FindWorker(id).has_value();
    all.push_back(std::move(candidate));
  }
  return all;
}

bool DeploymentController::IsExcluded(const std::string& worker, TimePoint now) const {
  const auto it = strikes_.find(worker);
  return it != strikes_.end() && it->second.excluded_until && now < *it->second.excluded_until;
}

absl::StatusOr<PlanDraft> DeploymentController::DraftFor(const DeploymentRecord& record,
                                                         TimePoint now) const {
  const std::vector<Candidate> all = Candidates();
  std::vector<Candidate> trusted = all;
  std::erase_if(trusted, [&](const Candidate& c) { return IsExcluded(c.worker.id, now); });
  const bool enough = static_cast<int>(trusted.size()) >= record.spec.min_workers;
  if (enough && trusted.size() < all.size()) {
    // Those that failed twice are left out where the others can do without them.
    absl::StatusOr<PlanDraft> draft = BuildPlan(record, std::move(trusted), *context_.placement);
    if (draft.ok()) {
      for (const Candidate& candidate : all) {
        const std::string& id = candidate.worker.id;
        if (!IsExcluded(id, now)) continue;
        draft->left_out.push_back(absl::StrCat(id, ": failed twice: ", strikes_.at(id).why));
      }
      return draft;
    }
  }
  absl::StatusOr<PlanDraft> draft = BuildPlan(record, all, *context_.placement);
  if (draft.ok()) return draft;
  if (IsRefusal(draft.status())) {
    return Annotate(draft.status(), absl::StrCat("deployment ", record.spec.name));
  }
  SY_RETURN_IF_ERROR(CheckSomeKindWouldDo(record));
  std::vector<std::string> ids;
  for (const Candidate& candidate : all) ids.push_back(candidate.worker.id);
  return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                   absl::StrFormat("deployment %s: %d workers are there (%s) and %d were asked "
                                   "for: %s",
                                   record.spec.name, ids.size(), absl::StrJoin(ids, ", "),
                                   record.spec.min_workers, draft.status().message()),
                   {{"deployment", record.spec.name}});
}

bool DeploymentController::ServingHolds() const {
  if (serving_ == nullptr) return false;
  const EpochKey key{name(), serving_->plan.epoch};
  return std::all_of(
      serving_->plan.workers.begin(), serving_->plan.workers.end(), [&](const PlanWorker& worker) {
        const Member* member = context_.members->Find(worker);
        const Hold* hold = member == nullptr ? nullptr : member->Find(key, serving_->hash);
        return hold != nullptr && hold->state == HoldState::kCommitted;
      });
}

bool DeploymentController::IsServing(const EpochKey& key, const PlanHash& hash) const {
  return serving_ != nullptr && key.deployment == name() && key.epoch == serving_->plan.epoch &&
         hash == serving_->hash;
}

bool DeploymentController::IsChanging(const EpochKey& key, const PlanHash& hash) const {
  return change_ && change_->news != nullptr && key == change_->key() &&
         hash == change_->news->hash;
}

bool DeploymentController::IsLost(const PlanWorker& worker) const {
  return context_.members->PresenceOf(worker) == Presence::kGone && !expected_.contains(worker.id);
}

void DeploymentController::ForgetOldStrikes(TimePoint now) {
  std::erase_if(strikes_, [&](const auto& entry) {
    return !entry.second.excluded_until &&
           now - entry.second.last_at > context_.options->quarantine_last;
  });
}

bool DeploymentController::WasAnnounced(Epoch epoch, const PlanHash& hash) const {
  const auto is = [&](const std::shared_ptr<const PlanUpdate>& news) {
    return news != nullptr && news->plan.epoch == epoch && news->hash == hash;
  };
  return is(serving_) || is(served_before_);
}

absl::Status DeploymentController::CheckServes() const {
  if (ServingHolds()) return absl::OkStatus();
  if (!refusal_.ok()) return refusal_;
  if (refused_here_) return problem_;
  std::string why = change_ ? change_->Describe() : activity_;
  if (!problem_.ok()) {
    absl::StrAppend(&why, "; ", problem_.message(), " (", absl::StatusCodeToString(problem_.code()),
                    ", ", ReasonName(ReasonOf(problem_)), ")");
  }
  return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                   absl::StrFormat("deployment %s does not serve: %s; try again", name(), why),
                   {{"deployment", name()}});
}

std::vector<CapabilitySet> DeploymentController::ServingCapabilities() const {
  std::vector<CapabilitySet> capabilities;
  if (serving_ == nullptr) return capabilities;
  for (const PlanWorker& worker : serving_->plan.workers) {
    const Member* member = context_.members->Find(worker);
    if (member != nullptr) capabilities.push_back(member->capabilities);
  }
  return capabilities;
}

bool DeploymentController::Needs(const Member& member) const {
  const bool holds = std::any_of(member.holds.begin(), member.holds.end(),
                                 [this](const auto& e) { return e.first.deployment == name(); });
  const auto& members = context_.members->members();
  const bool others = std::any_of(members.begin(), members.end(), [](const auto& entry) {
    return entry.second.connected() && !entry.second.leaving;
  });
  return holds && others;
}

DeploymentView DeploymentController::View() const {
  DeploymentView view;
  view.spec = record_->spec;
  view.shape = record_->facts.shape;
  view.layers = record_->facts.layers;
  view.storage = record_->facts.storage;
  view.manifest = record_->facts.manifest.Hash();
  view.serving = serving_;
  if (serving_ != nullptr) {
    view.state = ServingHolds() ? DeploymentState::kServing : DeploymentState::kUnavailable;
  }
  view.pending = change_ ? change_->epoch : Epoch{};
  view.activity = change_ ? change_->Describe() : activity_;
  view.problem = problem_;
  view.left_out = left_out_;
  view.warnings = warnings_;
  return view;
}

}  // namespace switchyard
