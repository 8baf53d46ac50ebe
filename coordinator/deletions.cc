#include "coordinator/deletions.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/amount_text.h"
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

void Deletions::Resume(Epoch high_water, TimePoint now) {
  high_water_ = high_water;
  for (const auto& [name, controller] : *deployments_) {
    // Its sessions are not stored: they tell of themselves when their sources dial again.
    if (!controller.deleting()) continue;
    deletions_[name].sources_until = now + options_->sources_return;
    deletions_[name].at_once = controller.record().deleting_at_once;
  }
}

void Deletions::Request(const DeleteRequested& request, DeploymentController& deployment,
                        TimePoint now) {
  const std::string& name = deployment.record().spec.name;
  Deletion& deletion = deletions_[name];
  deletion.at_once = deletion.at_once || request.now;
  const bool news =
      !deployment.deleting() || (deletion.at_once && !deployment.record().deleting_at_once);
  // A deployment that is being removed from the store needs no mark any more.
  if (!news || deletion.removing || deletion.removed) return Answer(request.id, name, now);
  if (request.id.value != 0) deletion.requests.push_back(request.id);
  if (deletion.write.value == 0) WriteMark(deployment, &deletion);
}

void Deletions::WriteMark(const DeploymentController& deployment, Deletion* deletion) {
  DeploymentRecord record = deployment.record();
  record.deleting = true;
  record.deleting_at_once = deletion->at_once;
  deletion->marks_at_once = deletion->at_once;
  deletion->write = out_->Write(PutDeployment{record.spec.name, CanonicalBytes(record)});
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
      out_->OfDeployment(name, "StoreFailed")
          .Warn("could not be removed from the store, which is tried again: %s", status.message());
      deletion.retry_at = now + kStoreRetry;
      return true;
    }
    deletion.removed = true;
    high_water_ = std::max(high_water_, deployment.high_water());
    deployment.Free();
    // In this order: a source learns why before its workers end what it has.
    sessions_->End(name, Deleted(name));
  } else {
    OnMarked(name, status, now);
  }
  return true;
}

void Deletions::OnMarked(const std::string& name, const absl::Status& status, TimePoint now) {
  Deletion& deletion = deletions_.at(name);
  DeploymentController& deployment = deployments_->at(name);
  if (!status.ok()) {
    for (const RequestId id : std::exchange(deletion.requests, {})) {
      out_->Add(AnswerDeployment{id, status});
    }
    // A second mark: the first one counts.
    deletion.at_once = deployment.record().deleting_at_once;
    if (!deployment.deleting()) deletions_.erase(name);
    return;
  }
  deployment.MarkDeleting(deletion.marks_at_once);
  // Asked for meanwhile.
  if (deletion.at_once && !deletion.marks_at_once) return WriteMark(deployment, &deletion);
  out_->OfDeployment(name, "Deleting")
      .Info("is being deleted; open: %s", CountText(sessions_->CountOf(name), "session"));
  for (const RequestId id : std::exchange(deletion.requests, {})) Answer(id, name, now);
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
      out_->OfDeployment(name, "Deleted").Info("deleted");
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

void Deletions::AddTo(DeploymentView* view, TimePoint now) const {
  const auto it = deletions_.find(view->spec.name);
  if (it == deletions_.end() || view->state != DeploymentState::kDeleting) return;
  const Deletion& deletion = it->second;
  if (deletion.removed) return;  // The view says for whom it waits.
  if (view->sessions > 0 && !deletion.at_once) {
    absl::StrAppend(&view->activity, "; waiting for ", CountText(view->sessions, "session"),
                    " to close, which --now would end");
  } else if (Drains(view->spec.name, deletion, now)) {
    absl::StrAppend(&view->activity,
                    "; waiting for sources of sessions from before the coordinator's restart");
  } else {
    absl::StrAppend(&view->activity, "; being removed from the store");
  }
}

void Deletions::Answer(RequestId id, const std::string& name, TimePoint now) {
  DeploymentView view = deployments_->at(name).View(now);
  view.sessions = sessions_->CountOf(name);
  AddTo(&view, now);
  out_->Add(AnswerDeployment{id, std::move(view)});
}

}  // namespace switchyard
