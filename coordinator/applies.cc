#include "coordinator/applies.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "coordinator/apply_preview.h"
#include "coordinator/config_planner.h"
#include "coordinator/progress/progress_view.h"
#include "coordinator/refusal.h"
#include "coordinator/spec/deployment_errors.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Requests of the coordinator itself, which nobody waits for. The driver counts from 1.
constexpr std::uint64_t kOwnRequests = std::uint64_t{1} << 63;
// The log has a line on a checkpoint that is read after these times.
constexpr Duration kFirstLine = std::chrono::seconds(1);
constexpr Duration kEveryLine = std::chrono::seconds(10);

// The row of `deployment`, or the place where it belongs.
std::vector<DeploymentView>::iterator RowOf(CoordinatorView* view, const std::string& deployment,
                                            bool* exists) {
  auto& all = view->deployments;
  const auto at = std::ranges::lower_bound(all, deployment, {},
                                           [](const DeploymentView& one) { return one.spec.name; });
  *exists = at != all.end() && at->spec.name == deployment;
  return at;
}

}  // namespace

void Applies::Resume(const std::vector<DeploymentSpec>& specs, TimePoint now) {
  std::uint64_t id = kOwnRequests;
  for (const DeploymentSpec& spec : specs) {
    Apply& apply = applies_[RequestId{++id}];
    apply.spec = spec;
    apply.begun = now;
    apply.durable = true;
    apply.answered = true;
    context_->out->Add(CheckModel{RequestId{id}, spec.checkpoint});
  }
}

bool Applies::IsRunning(const std::string& deployment) const {
  return std::ranges::any_of(applies_, [&](const auto& entry) {
    return entry.second.spec.name == deployment && !entry.second.dry_run;
  });
}

absl::Status Applies::CheckRoom() const {
  // Dry runs that hash weights wait behind each other, and everything that waits takes memory.
  if (applies_.size() < 2 * context_->options->max_deployments) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                   absl::StrFormat("%d applies are being read; try again when some have finished",
                                   applies_.size()));
}

absl::Status Applies::CheckDryRun(const DeploymentSpec& spec) const {
  SY_RETURN_IF_ERROR(CheckRoom());
  if (deletions_->Has(spec.name)) return DeploymentBusy(spec.name, "being deleted");
  return absl::OkStatus();
}

absl::Status Applies::Check(const DeploymentSpec& spec) const {
  // The slower one of two would win. One that was answered is ended by the newer one.
  const bool busy = std::ranges::any_of(applies_, [&](const auto& entry) {
    const Apply& apply = entry.second;
    return apply.spec.name == spec.name && !apply.dry_run &&
           (!apply.answered || apply.write != WriteId{});
  });
  if (busy) return DeploymentBusy(spec.name, "already being applied");
  SY_RETURN_IF_ERROR(CheckDryRun(spec));
  // Replacing a deployment needs no room.
  if (deployments_->contains(spec.name)) return absl::OkStatus();
  const std::size_t most = context_->options->max_deployments;
  const auto used = static_cast<std::size_t>(std::ranges::count_if(
      *deployments_, [](const auto& entry) { return !entry.second.refused(); }));
  const auto coming = static_cast<std::size_t>(
      std::ranges::count_if(applies_, [](const auto& entry) { return !entry.second.dry_run; }));
  if (used + coming < most) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kBadConfig,
                   absl::StrFormat("the limit of %d deployments is reached; delete one, or start "
                                   "the coordinator with a larger --max-deployments",
                                   most));
}

const Applies::Apply* Applies::FindAnswered(const DeploymentSpec& spec) const {
  const auto it = std::ranges::find_if(applies_, [&](const auto& entry) {
    return entry.second.answered && entry.second.write == WriteId{} && entry.second.spec == spec;
  });
  return it == applies_.end() ? nullptr : &it->second;
}

bool Applies::Supersede(const std::string& deployment, RequestId by) {
  const std::size_t before = applies_.size();
  for (auto it = applies_.begin(); it != applies_.end();) {
    const Apply& apply = it->second;
    // One whose record is being written is as good as done.
    const bool ends = it->first != by && apply.spec.name == deployment && apply.answered &&
                      apply.write == WriteId{};
    if (ends) context_->out->Add(CancelLoad{it->first});
    it = ends ? applies_.erase(it) : std::next(it);
  }
  return applies_.size() < before;
}

bool Applies::Cancel(const std::string& deployment) {
  const bool failed = failed_.Remove(deployment);
  const bool superseded = Supersede(deployment, RequestId{});
  if (superseded) {
    context_->out->Write(PutApply{deployment, ""});
    context_->out->OfDeployment(deployment, "ApplyCanceled").Info("its apply is canceled");
  }
  return failed || superseded;
}

void Applies::On(const ApplyRequested& event, TimePoint now) {
  // Checked before the checkpoint is read, which may take minutes.
  absl::StatusOr<DeploymentSpec> spec = CompleteSpec(event.spec);
  absl::Status status = spec.status();
  if (status.ok()) status = event.dry_run ? CheckDryRun(*spec) : Check(*spec);
  if (!status.ok()) {
    if (!event.dry_run) context_->times->refused.Observe(Duration{});
    context_->out->Add(AnswerDeployment{event.id, status});
    return;
  }
  // Stamped now and stored: a coordinator that restarts with other options must plan as before.
  spec->coordinator_defaults = context_->options->dispatch;
  if (const Apply* same = FindAnswered(*spec); same != nullptr && !event.dry_run) {
    // The weights that it has read are not read anew.
    context_->out->Add(AnswerDeployment{event.id, EarlyView(*same, now)});
    return;
  }
  context_->out->Add(CheckModel{event.id, spec->checkpoint});
  Apply& apply = applies_[event.id];
  apply.spec = *std::move(spec);
  apply.dry_run = event.dry_run;
  apply.hash_weights = event.hash_weights;
  apply.begun = now;
}

void Applies::On(const ModelChecked& event, TimePoint now) {
  const auto it = applies_.find(event.id);
  if (it == applies_.end()) return;
  Apply& apply = it->second;
  absl::Status status = event.facts.status();
  if (status.ok()) status = CheckLayout(*event.facts);
  // Only now is it known which layers the model has.
  if (status.ok()) status = CheckLayersExist(apply.spec, *event.facts);
  if (!status.ok()) {
    const Apply failed = std::move(apply);
    applies_.erase(it);
    Fail(event.id, failed, status, now);
    return;
  }
  DeploymentRecord record{.spec = apply.spec, .facts = *event.facts};
  if (apply.dry_run && !apply.hash_weights) {
    const DeploymentController* running = ControllerOf(apply.spec.name);
    // The files are taken for those that were applied from there.
    if (running != nullptr && running->record().spec.checkpoint == apply.spec.checkpoint) {
      record.facts.manifest = running->record().facts.manifest;
    }
    DeploymentView view = PreviewOf(*context_, running, record, now);
    view.manifest = {};
    context_->out->Add(AnswerDeployment{event.id, std::move(view)});
    applies_.erase(it);
    return;
  }
  context_->out->Add(LoadModel{event.id, apply.spec.checkpoint});
  if (apply.dry_run) return;
  apply.refusal = CheckServable(record);
  // Not before: a request that is wrong ends no other one.
  const bool superseded = Supersede(apply.spec.name, event.id);
  failed_.Remove(apply.spec.name);
  apply.checked = true;
  // In the place of the older request, with which a restart would go on.
  if (superseded) StoreRequest(&apply);
}

void Applies::On(const ModelProgress& event, TimePoint now) {
  const auto it = applies_.find(event.id);
  if (it == applies_.end()) return;
  Apply& apply = it->second;
  apply.read.Add(event.bytes_done, now);
  apply.bytes = event.bytes;
  if (now < apply.log_at) return;
  // The first line comes when it is known that it takes its time.
  if (apply.log_at != TimePoint{}) {
    context_->out->OfDeployment(apply.spec.name)
        .Info("%s%s", apply.dry_run ? "a dry run is " : "", TextOf(ReadingOf(apply, now)));
  }
  apply.log_at = now + (apply.log_at == TimePoint{} ? kFirstLine : kEveryLine);
}

void Applies::On(const ModelLoaded& event, TimePoint now) {
  const auto it = applies_.find(event.id);
  if (it == applies_.end()) return;
  absl::Status status = event.facts.status();
  if (status.ok()) status = CheckFacts(*event.facts);
  // Again, since the files may have changed after the check.
  if (status.ok()) status = CheckLayersExist(it->second.spec, *event.facts);
  Apply apply = std::move(it->second);
  applies_.erase(it);
  if (!status.ok()) {
    Fail(event.id, apply, status, now);
    return;
  }
  const DeploymentController* existing = ControllerOf(apply.spec.name);
  apply.record.spec = apply.spec;
  apply.record.facts = *event.facts;
  apply.record.grant_key =
      existing != nullptr ? existing->record().grant_key : GrantKey::Random(context_->rng);
  if (apply.dry_run) {
    context_->out->Add(
        AnswerDeployment{event.id, PreviewOf(*context_, existing, apply.record, now)});
  } else {
    Put(event.id, std::move(apply), /*rollback_to=*/0, now);
  }
}

void Applies::OnTick(TimePoint now) {
  for (auto& [id, apply] : applies_) {
    if (MayBeStored(apply) && now >= apply.begun + kApplyAnswer) StoreRequest(&apply);
  }
}

TimePoint Applies::NextDue() const {
  TimePoint next = TimePoint::max();
  for (const auto& [id, apply] : applies_) {
    if (MayBeStored(apply)) next = std::min(next, apply.begun + kApplyAnswer);
  }
  return next;
}

void Applies::StoreRequest(Apply* apply) {
  apply->request_write =
      context_->out->Write(PutApply{apply->spec.name, CanonicalBytes({.spec = apply->spec})});
}

void Applies::Fail(RequestId id, const Apply& apply, const absl::Status& why, TimePoint now) {
  if (!apply.dry_run) context_->times->refused.Observe(now - apply.begun);
  const absl::Status status = Annotate(why, absl::StrCat("deployment ", apply.spec.name));
  EndRequest(apply);
  Answer(id, apply, status);
  if (!apply.answered) return;
  failed_.Add(apply.spec, status, context_->out->wall_time());
  context_->out->OfDeployment(apply.spec.name, "ApplyFailed")
      .Warn("was not applied: %s", std::string(why.message()));
}

void Applies::Answer(RequestId id, const Apply& apply, absl::StatusOr<DeploymentView> result) {
  if (!apply.answered) context_->out->Add(AnswerDeployment{id, std::move(result)});
}

void Applies::EndRequest(const Apply& apply) {
  const bool sent = apply.durable || apply.request_write != WriteId{};
  if (sent) context_->out->Write(PutApply{apply.spec.name, ""});
}

void Applies::On(const RollbackRequested& event, TimePoint now) {
  const DeploymentController* deployment = ControllerOf(event.deployment);
  absl::Status status = deployment == nullptr ? NoDeployment(event.deployment) : absl::OkStatus();
  if (status.ok()) status = Check(deployment->record().spec);
  if (status.ok()) {
    const DeploymentRecord& record = deployment->record();
    const auto target = deployment->applied().revisions().RollbackTarget(
        event.deployment, record.revision, event.to_revision);
    status = target.status();
    if (target.ok()) {
      if (Supersede(event.deployment, event.id)) {
        context_->out->Write(PutApply{event.deployment, ""});
      }
      failed_.Remove(event.deployment);
      Apply back;
      back.begun = now;
      back.spec = (*target)->spec;
      back.record.spec = (*target)->spec;
      back.record.facts = *(*target)->facts;
      back.record.grant_key = record.grant_key;
      return Put(event.id, std::move(back), (*target)->number, now);
    }
  }
  context_->times->refused.Observe(Duration{});
  context_->out->Add(AnswerDeployment{event.id, status});
}

void Applies::Put(RequestId id, Apply apply, std::uint64_t rollback_to, TimePoint now) {
  const DeploymentController* existing = ControllerOf(apply.spec.name);
  DeploymentRecord& record = apply.record;
  std::uint64_t served = 0;
  if (existing != nullptr) {
    record.revision = existing->record().revision;
    // Nothing to store or to plan, so that applying the same file again is free.
    if (existing->record() == record) {
      EndRequest(apply);
      context_->times->applied.Observe(now - apply.begun);
      Answer(id, apply, ViewOf(*existing, now));
      return;
    }
    apply.revisions = existing->applied().revisions();
    served = existing->applied().served();
  }
  ++record.revision;
  Revision revision{.number = record.revision,
                    .spec = record.spec,
                    .facts = apply.revisions.Share(record.facts),
                    .applied = context_->out->wall_time(),
                    .rollback_to = rollback_to,
                    .refusal = std::string(CheckServable(record).message())};
  const std::vector<std::uint64_t> forget =
      apply.revisions.Surplus(context_->options->revisions_kept, served);
  apply.write = context_->out->Write(
      PutDeployment{apply.spec.name, CanonicalBytes(record), ToStored(revision), forget});
  apply.revisions.Add(std::move(revision), forget);
  applies_.emplace(id, std::move(apply));
}

bool Applies::OnStoreWritten(WriteId write, const absl::Status& status, TimePoint now) {
  for (auto it = applies_.begin(); it != applies_.end(); ++it) {
    if (it->second.request_write == write) {
      // Without it the answer waits until everything is done.
      if (!status.ok()) return true;
      it->second.durable = true;
      Answer(it->first, it->second, EarlyView(it->second, now));
      it->second.answered = true;
      return true;
    }
    if (it->second.write != write) continue;
    // Removed first, so that the name is free for the next apply when this one is answered.
    const Apply apply = std::move(it->second);
    const RequestId id = it->first;
    applies_.erase(it);
    if (status.ok()) {
      Finish(id, apply, now);
    } else {
      Fail(id, apply, status, now);
    }
    return true;
  }
  return false;
}

void Applies::Finish(RequestId id, const Apply& apply, TimePoint now) {
  context_->times->applied.Observe(now - apply.begun);
  DeploymentController* controller = ControllerOf(apply.spec.name);
  if (controller != nullptr) {
    // The serving epoch goes on until a plan of the new record has replaced it.
    controller->SetRecord(apply.record, apply.revisions);
  } else {
    const auto added = deployments_->try_emplace(apply.spec.name, *context_, apply.record,
                                                 apply.revisions, deletions_->high_water(), now);
    controller = &added.first->second;
  }
  const Revision& revision = apply.revisions.list()->back();
  const bool applied = revision.rollback_to == 0;
  context_->out->OfDeployment(apply.spec.name, applied ? "Applied" : "RolledBack")
      .Info("%s as revision %d, model %s, %d MoE layers of %d experts",
            applied ? "applied" : absl::StrCat("rolled back to ", revision.rollback_to),
            revision.number, apply.spec.model, apply.record.facts.layers.size(),
            apply.record.facts.shape.experts);
  // Before the answer, so that it says what came of the deployment with the available workers.
  controller->Evaluate(now);
  Answer(id, apply, ViewOf(*controller, now));
  DropRefused(now);
}

void Applies::DropRefused(TimePoint now) {
  std::vector<DeploymentController*> refused;
  for (auto& [name, controller] : *deployments_) {
    if (controller.refused() && !controller.deleting()) refused.push_back(&controller);
  }
  const auto applied = [](const DeploymentController* one) {
    const Revisions::List& list = *one->applied().revisions().list();
    return list.empty() ? WallTime() : list.back().applied;
  };
  while (refused.size() > context_->options->max_deployments) {
    const auto oldest = std::ranges::min_element(refused, {}, applied);
    // It has no sessions, and workers hold nothing of it: it is gone within this step.
    deletions_->Request(DeleteRequested{{}, (*oldest)->record().spec.name}, **oldest, now);
    refused.erase(oldest);
  }
}

DeploymentView Applies::ViewOf(const DeploymentController& controller, TimePoint now) const {
  DeploymentView view = controller.View(now);
  view.sessions = sessions_->CountOf(view.spec.name);
  return view;
}

DeploymentController* Applies::ControllerOf(const std::string& deployment) const {
  const auto it = deployments_->find(deployment);
  return it == deployments_->end() ? nullptr : &it->second;
}

DeploymentView Applies::EarlyView(const Apply& apply, TimePoint now) const {
  CoordinatorView all;
  if (const DeploymentController* controller = ControllerOf(apply.spec.name)) {
    all.deployments.push_back(ViewOf(*controller, now));
  }
  AddTo(&all, now);
  bool exists = false;
  DeploymentView view = *RowOf(&all, apply.spec.name, &exists);
  view.spec = apply.spec;
  view.current = false;
  if (view.problem.ok()) view.problem = apply.refusal;
  return view;
}

ReadingView Applies::ReadingOf(const Apply& apply, TimePoint now) {
  return {.model = apply.spec.model,
          .checkpoint = apply.spec.checkpoint,
          .bytes_done = apply.read.count(),
          .bytes = apply.bytes,
          .pace = PaceOf(apply.read, apply.bytes, now),
          .dry_run = apply.dry_run};
}

void Applies::AddFailedTo(CoordinatorView* view) const {
  for (const auto& [name, failed] : failed_.all()) {
    bool exists = false;
    auto row = RowOf(view, name, &exists);
    if (exists) {
      row->apply_failure = failed.why;
      absl::StrAppend(&row->activity, "; the last apply failed");
      continue;
    }
    row = view->deployments.insert(row, DeploymentView());
    row->spec = failed.spec;
    row->state = DeploymentState::kRefused;
    row->refused = true;
    row->apply_failure = failed.why;
    row->problem = failed.why;
    row->activity = "refused: its apply failed; fix it and apply it again";
  }
}

void Applies::AddTo(CoordinatorView* view, TimePoint now) const {
  AddFailedTo(view);
  for (const auto& [id, apply] : applies_) {
    bool exists = false;
    auto at = RowOf(view, apply.spec.name, &exists);
    // A dry run creates nothing.
    if (!exists && apply.dry_run) continue;
    if (!exists) {
      at = view->deployments.insert(at, DeploymentView());
      at->spec = apply.spec;
      at->state = DeploymentState::kReading;
    }
    at->reading = ReadingOf(apply, now);
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
