#include "coordinator/applies.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "coordinator/config_planner.h"
#include "coordinator/progress/progress_view.h"
#include "coordinator/refusal.h"
#include "coordinator/replan_gate.h"
#include "coordinator/spec/deployment_errors.h"
#include "core/base/error.h"

namespace switchyard {

bool Applies::IsRunning(const std::string& deployment) const {
  return std::any_of(applies_.begin(), applies_.end(),
                     [&](const auto& entry) { return entry.second.spec.name == deployment; });
}

absl::Status Applies::Check(const DeploymentSpec& spec) const {
  // One apply of a name at a time: of two, the slower one would win.
  if (IsRunning(spec.name)) return DeploymentBusy(spec.name, "already being applied");
  if (deletions_->Has(spec.name)) return DeploymentBusy(spec.name, "being deleted");
  // Replacing a deployment needs no room.
  if (deployments_->contains(spec.name)) return absl::OkStatus();
  const std::size_t most = context_->options->max_deployments;
  const auto used = static_cast<std::size_t>(std::ranges::count_if(
      *deployments_, [](const auto& entry) { return !entry.second.refused(); }));
  if (used + applies_.size() < most) return absl::OkStatus();
  return MakeError(absl::StatusCode::kResourceExhausted, Reason::kBadConfig,
                   absl::StrFormat("the limit of %d deployments is reached; delete one, or start "
                                   "the coordinator with a larger --max-deployments",
                                   most));
}

void Applies::Answer(RequestId id, const Apply& apply, absl::StatusOr<DeploymentView> answer,
                     TimePoint now) {
  CoordinatorTimes& times = *context_->times;
  if (!apply.dry_run) (answer.ok() ? times.applied : times.refused).Observe(now - apply.began);
  context_->out->Add(AnswerDeployment{id, std::move(answer)});
}

void Applies::On(const ApplyRequested& event, TimePoint now) {
  Apply apply;
  apply.dry_run = event.dry_run;
  apply.began = now;
  // Checked before the checkpoint is read, which may take minutes.
  absl::StatusOr<DeploymentSpec> spec = CompleteSpec(event.spec);
  absl::Status status = spec.status();
  if (status.ok()) status = Check(*spec);
  if (!status.ok()) {
    Answer(event.id, apply, status, now);
    return;
  }
  // Stamped now and stored: a coordinator that restarts with other options must plan as before.
  spec->coordinator_defaults = context_->options->dispatch;
  context_->out->Add(LoadModel{event.id, spec->checkpoint});
  apply.spec = *std::move(spec);
  applies_[event.id] = std::move(apply);
}

void Applies::On(const ModelProgress& event, TimePoint now) {
  const auto it = applies_.find(event.id);
  if (it == applies_.end()) return;
  it->second.read.Add(event.bytes_done, now);
  it->second.bytes = event.bytes;
}

void Applies::On(const ModelLoaded& event, TimePoint now) {
  const auto it = applies_.find(event.id);
  if (it == applies_.end()) return;
  Apply& apply = it->second;
  absl::Status status = event.facts.status();
  if (status.ok()) status = CheckFacts(*event.facts);
  // Only now is it known which layers the model has.
  if (status.ok()) status = CheckLayersExist(apply.spec, *event.facts);
  if (!status.ok()) {
    Answer(event.id, apply, Annotate(status, absl::StrCat("deployment ", apply.spec.name)), now);
    applies_.erase(it);
    return;
  }
  const DeploymentController* existing = ControllerOf(apply.spec.name);
  apply.record.spec = apply.spec;
  apply.record.facts = *event.facts;
  apply.record.grant_key =
      existing != nullptr ? existing->record().grant_key : GrantKey::Random(context_->rng);
  auto node = applies_.extract(it);
  if (node.mapped().dry_run) {
    context_->out->Add(AnswerDeployment{event.id, Preview(node.mapped().record, now)});
  } else {
    Put(event.id, std::move(node.mapped()), /*rollback_to=*/0, now);
  }
}

void Applies::On(const RollbackRequested& event, TimePoint now) {
  const DeploymentController* deployment = ControllerOf(event.deployment);
  absl::Status status = deployment == nullptr ? NoDeployment(event.deployment) : absl::OkStatus();
  if (status.ok()) status = Check(deployment->record().spec);
  Apply back;
  back.began = now;
  if (status.ok()) {
    const DeploymentRecord& record = deployment->record();
    const auto target = deployment->applied().revisions().RollbackTarget(
        event.deployment, record.revision, event.to_revision);
    status = target.status();
    if (target.ok()) {
      back.spec = (*target)->spec;
      back.record.spec = (*target)->spec;
      back.record.facts = *(*target)->facts;
      back.record.grant_key = record.grant_key;
      return Put(event.id, std::move(back), (*target)->number, now);
    }
  }
  Answer(event.id, back, status, now);
}

void Applies::Put(RequestId id, Apply apply, std::uint64_t rollback_to, TimePoint now) {
  const DeploymentController* existing = ControllerOf(apply.spec.name);
  DeploymentRecord& record = apply.record;
  std::uint64_t served = 0;
  if (existing != nullptr) {
    record.revision = existing->record().revision;
    // Nothing to store or to plan, so that applying the same file again is free.
    if (existing->record() == record) {
      return Answer(id, apply, ViewOf(*existing, now), now);
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
    if (it->second.write != write) continue;
    // Removed first, so that the name is free for the next apply when this one is answered.
    const Apply apply = std::move(it->second);
    const RequestId id = it->first;
    applies_.erase(it);
    if (status.ok()) {
      Finish(id, apply, now);
    } else {
      Answer(id, apply, status, now);
    }
    return true;
  }
  return false;
}

void Applies::Finish(RequestId id, const Apply& apply, TimePoint now) {
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
  Answer(id, apply, ViewOf(*controller, now), now);
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

// Proposes the plan that `record` would get now, or says why the available workers allow none.
DeploymentView Applies::Preview(const DeploymentRecord& record, TimePoint now) const {
  // A controller of its own for the view, so that a dry run leaves no trace in the deployment that
  // runs. The plan is that of the running one: it knows what serves and which workers fail.
  const DeploymentController probe(*context_, record, Revisions(), Epoch{}, now);
  DeploymentView view = probe.View(now);
  const DeploymentController* running = ControllerOf(record.spec.name);
  const Plan* serving = running == nullptr ? nullptr : running->serving().plan();
  const bool serves = serving != nullptr;
  const absl::StatusOr<PlanProposal> proposal =
      serves ? running->ProposalFor(record, now) : probe.ProposalFor(record, now);
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
  const std::string missing =
      MissingWorkers(context_->members->CandidateIds(serving), record.spec.min_workers);
  if (!missing.empty()) {
    absl::StrAppend(&view.activity, "; min_workers is not reached: ", missing);
    // A dry run plans with the workers that are connected, but a real first plan would still wait.
    if (!serves) {
      absl::StrAppend(&view.activity, ", and a first plan waits for more up to join_timeout");
    }
  }
  return view;
}

void Applies::AddTo(CoordinatorView* view, TimePoint now) const {
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
