#include "coordinator/duties.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {

absl::Status Duties::Request(const DutyRequested& request, TimePoint now) {
  const std::string& worker = request.worker;
  const bool has_duty = members_->duties().contains(worker);
  if (!has_duty && !members_->members().contains(worker)) {
    return MakeError(
        absl::StatusCode::kNotFound, Reason::kUnknownWorker,
        absl::StrFormat("there is no worker \"%s\"; 'syctl get workers' lists them", worker),
        {{"worker", worker}});
  }
  if (!has_duty && members_->duties().size() + pending_.size() >= kWorkerDutiesMax) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kBadConfig,
                     absl::StrFormat("%d workers are cordoned or drained, the most there may be; "
                                     "uncordon those that are gone",
                                     kWorkerDutiesMax));
  }
  Change change{request.id, worker, request.duty, {}};
  if (request.duty == WorkerDuty::kDraining) {
    SY_RETURN_IF_ERROR(CheckDrain(worker, request.force, now, &change.warnings));
  }
  pending_[out_->Write(PutWorkerDuty{worker, request.duty})] = std::move(change);
  return absl::OkStatus();
}

absl::Status Duties::CheckDrain(const std::string& worker, bool force, TimePoint now,
                                std::vector<std::string>* warnings) const {
  const auto known = members_->duties().find(worker);
  const WorkerDuty before = known == members_->duties().end() ? WorkerDuty::kServe : known->second;
  std::vector<std::string> lacking;
  // For these plans only, which nobody sees.
  members_->SetDuty(worker, WorkerDuty::kDraining);
  for (const auto& [name, controller] : *deployments_) {
    const Plan* serving = controller.serving().plan();
    if (serving == nullptr || !serving->FindWorker(worker)) continue;
    const auto proposal = controller.ProposalFor(controller.planned(), now);
    if (!proposal.ok()) {
      // Which names the deployment.
      lacking.push_back(absl::StrCat("without it ", proposal.status().message()));
      continue;
    }
    const int left = static_cast<int>(proposal->plan.workers.size());
    const int least = controller.planned().spec.min_workers;
    if (left < least) {
      warnings->push_back(
          absl::StrFormat("deployment %s: %d workers are left, fewer than its "
                          "min_workers, %d",
                          name, left, least));
    }
  }
  members_->SetDuty(worker, before);
  if (lacking.empty()) return absl::OkStatus();
  if (force) {
    for (std::string& each : lacking) {
      warnings->push_back(absl::StrCat(std::move(each), "; it serves on until others can"));
    }
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kNotReady,
      absl::StrFormat(
          "worker %s is not drained: %s; with --force it is, and serves on until others "
          "can",
          worker, absl::StrJoin(lacking, "; ")),
      {{"worker", worker}});
}

std::optional<Duties::Change> Duties::TakeWritten(WriteId write) {
  auto change = pending_.extract(write);
  if (change.empty()) return std::nullopt;
  return std::move(change.mapped());
}

}  // namespace switchyard
