#include "coordinator/store/memory_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/status_macros.h"

namespace switchyard {

absl::Status MemoryStore::Write(const StoreWrite& write) {
  return std::visit([this](const auto& w) { return Apply(w); }, write);
}

absl::StatusOr<StoredDeployment*> MemoryStore::Find(const std::string& deployment) {
  const auto it = deployments_.find(deployment);
  if (it == deployments_.end()) return StoreConflict(deployment, "the deployment does not exist");
  return &it->second;
}

absl::Status MemoryStore::Apply(const PutDeployment& put) {
  const auto [it, added] = deployments_.try_emplace(put.deployment);
  it->second.deployment = put.deployment;
  applies_.erase(put.deployment);
  it->second.record = put.record;
  if (added) it->second.high_water = deleted_high_water_;
  std::vector<StoredRevision>& revisions = it->second.revisions;
  std::erase_if(revisions, [&put](const StoredRevision& one) {
    const bool replaced = put.revision && one.number == put.revision->number;
    return replaced || std::count(put.forget.begin(), put.forget.end(), one.number) > 0;
  });
  if (put.revision) {
    const Sha256Digest checkpoint = Sha256(put.revision->checkpoint);
    checkpoints_[checkpoint] = put.revision->checkpoint;
    revisions.push_back({put.revision->number, {}, put.revision->revision, checkpoint});
    std::sort(revisions.begin(), revisions.end(),
              [](const auto& a, const auto& b) { return a.number < b.number; });
  }
  DropUnusedCheckpoints();
  return absl::OkStatus();
}

void MemoryStore::DropUnusedCheckpoints() {
  std::erase_if(checkpoints_, [this](const auto& entry) {
    return std::none_of(deployments_.begin(), deployments_.end(), [&](const auto& one) {
      const auto& revisions = one.second.revisions;
      return std::any_of(revisions.begin(), revisions.end(), [&](const StoredRevision& each) {
        return each.checkpoint == entry.first;
      });
    });
  });
}

absl::Status MemoryStore::Apply(const ReserveEpoch& reserve) {
  SY_ASSIGN_OR_RETURN(StoredDeployment * stored, Find(reserve.deployment));
  if (reserve.epoch <= stored->high_water) {
    return StoreConflict(reserve.deployment,
                         absl::StrFormat("epoch %d is not above %d, the last number given out",
                                         reserve.epoch.value, stored->high_water.value));
  }
  // Never lowered, so that an aborted number stays used up (I10).
  stored->high_water = reserve.epoch;
  return absl::OkStatus();
}

absl::Status MemoryStore::Apply(const CommitPlan& commit) {
  SY_ASSIGN_OR_RETURN(StoredDeployment * stored, Find(commit.deployment));
  // Plans ascend, so the last one is the highest.
  const bool has_plan = !stored->plans.empty() && stored->plans.back().epoch >= commit.epoch;
  if (commit.epoch != stored->high_water || has_plan) {
    return StoreConflict(
        commit.deployment,
        absl::StrFormat("epoch %d cannot be committed: the last number given out is %d, and it %s",
                        commit.epoch.value, stored->high_water.value,
                        has_plan ? "has a plan already" : "has no plan"));
  }
  stored->plans.push_back({commit.epoch, commit.hash, commit.plan});
  return absl::OkStatus();
}

absl::Status MemoryStore::Apply(const MarkServing& mark) {
  SY_ASSIGN_OR_RETURN(StoredDeployment * stored, Find(mark.deployment));
  const bool has_plan =
      std::any_of(stored->plans.begin(), stored->plans.end(),
                  [&mark](const StoredPlan& plan) { return plan.epoch == mark.epoch; });
  if (!has_plan) {
    return StoreConflict(mark.deployment,
                         absl::StrFormat("epoch %d has no plan", mark.epoch.value));
  }
  for (StoredRevision& one : stored->revisions) {
    if (one.number == mark.revision) one.served = mark.epoch;
  }
  // A repeated mark must not drop the plan that served before: `serving` is this epoch already.
  if (stored->serving == mark.epoch) return absl::OkStatus();
  // Sources may still hold the plan that served before; older ones cannot be in use.
  std::erase_if(stored->plans, [&](const StoredPlan& plan) {
    return plan.epoch < mark.epoch && plan.epoch != stored->serving;
  });
  stored->serving = mark.epoch;
  return absl::OkStatus();
}

absl::Status MemoryStore::Apply(const DeleteDeployment& gone) {
  applies_.erase(gone.deployment);
  const auto it = deployments_.find(gone.deployment);
  if (it == deployments_.end()) return absl::OkStatus();
  deleted_high_water_ = std::max(deleted_high_water_, it->second.high_water);
  deployments_.erase(it);
  DropUnusedCheckpoints();
  return absl::OkStatus();
}

absl::Status MemoryStore::Apply(const PutWorkerDuty& put) {
  if (put.duty == WorkerDuty::kServe) {
    duties_.erase(put.worker);
  } else {
    duties_[put.worker] = put.duty;
  }
  return absl::OkStatus();
}

absl::Status MemoryStore::Apply(const PutApply& put) {
  if (put.record.empty()) {
    applies_.erase(put.deployment);
  } else {
    applies_[put.deployment] = put.record;
  }
  return absl::OkStatus();
}

absl::StatusOr<StoredState> MemoryStore::Load() {
  StoredState state;
  for (const auto& [name, stored] : deployments_) state.deployments.push_back(stored);
  state.checkpoints = checkpoints_;
  state.deleted_high_water = deleted_high_water_;
  state.duties = duties_;
  state.applies = applies_;
  return state;
}

}  // namespace switchyard
