#include "coordinator/deletions.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

// A store that could not be written is tried again after this long.
constexpr Duration kStoreRetry = std::chrono::seconds(1);

absl::Status Deleted(const std::string& name) {
  return MakeError(
      absl::StatusCode::kNotFound, Reason::kUnknownModel,
      absl::StrFormat("deployment %s was deleted; open a session of another one", name),
      {{"deployment", name}});
}

}  // namespace

absl::Status DeploymentBusy(const std::string& deployment, absl::string_view with) {
  return MakeError(
      absl::StatusCode::kUnavailable, Reason::kNotReady,
      absl::StrFormat("deployment %s is %s; try again when that has finished", deployment, with),
      {{"deployment", deployment}});
}

void Deletions::Resume(Epoch high_water, TimePoint now) {
  high_water_ = high_water;
  for (const auto& [name, controller] : *deployments_) {
    // Its sessions are not stored: they tell of themselves when their sources dial again.
    if (controller.deleting()) deletions_[name].sources_until = now + options_->sources_return;
  }
}

void Deletions::Request(const DeleteRequested& request, DeploymentController& deployment,
                        TimePoint now) {
  const std::string& name = deployment.record().spec.name;
  const auto [it, added] = deletions_.try_emplace(name);
  Deletion& deletion = it->second;
  deletion.at_once = deletion.at_once || request.now;
  if (deployment.deleting()) return Answer(request.id, name, now);
  deletion.requests.push_back(request.id);
  if (!added) return;  // The mark is on its way.
  DeploymentRecord record = deployment.record();
  record.deleting = true;
  deletion.write = out_->Write(PutDeployment{name, CanonicalBytes(record)});
}

bool Deletions::OnStoreWritten(WriteId write, const absl::Status& status, TimePoint now) {
  const auto it = std::find_if(deletions_.begin(), deletions_.end(),
                               [write](const auto& entry) { return entry.second.write == write; });
  if (it == deletions_.end()) return false;
  const std::string name = it->first;
  Deletion& deletion = it->second;
  deletion.write = {};
  DeploymentController& deployment = deployments_->at(name);
  if (deletion.removing) {
    deletion.removing = false;
    if (!status.ok()) {
      out_->OfDeployment(name).Warn("could not be removed from the store, which is tried again: %s",
                                    status.message());
      deletion.retry_at = now + kStoreRetry;
      return true;
    }
    deletion.removed = true;
    high_water_ = std::max(high_water_, deployment.high_water());
    deployment.Free();
    // In this order: a source learns why before its workers end what it has.
    sessions_->End(name, Deleted(name));
  } else if (status.ok()) {
    deployment.MarkDeleting();
    out_->OfDeployment(name).Info("is being deleted; %d sessions are open",
                                  sessions_->CountOf(name));
    for (const RequestId id : std::exchange(deletion.requests, {})) Answer(id, name, now);
  } else {
    for (const RequestId id : deletion.requests) out_->Add(AnswerDeployment{id, status});
    deletions_.erase(it);
  }
  return true;
}

bool Deletions::Drains(const std::string& name, const Deletion& deletion, TimePoint now) const {
  if (deletion.at_once) return false;
  return now < deletion.sources_until || sessions_->CountOf(name) > 0;
}

bool Deletions::Advance(TimePoint now) {
  bool gone = false;
  for (auto it = deletions_.begin(); it != deletions_.end();) {
    const std::string& name = it->first;
    Deletion& deletion = it->second;
    DeploymentController& deployment = deployments_->at(name);
    if (deletion.removed && deployment.IsGone()) {
      out_->OfDeployment(name).Info("deleted");
      memory_->Forget(name);
      deployments_->erase(name);
      it = deletions_.erase(it);
      gone = true;
      continue;
    }
    const bool idle = deletion.write.value == 0 && !deletion.removed && now >= deletion.retry_at;
    if (idle && deployment.deleting() && !Drains(name, deletion, now)) {
      deployment.StopPlanning();
      deletion.removing = true;
      deletion.write = out_->Write(DeleteDeployment{name});
    }
    ++it;
  }
  return gone;
}

void Deletions::Answer(RequestId id, const std::string& name, TimePoint now) {
  DeploymentView view = deployments_->at(name).View(now);
  view.sessions = sessions_->CountOf(name);
  out_->Add(AnswerDeployment{id, std::move(view)});
}

}  // namespace switchyard
