#include "coordinator/store/memory_store.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::Status Apply(StoredDeployment& stored, const PutDeployment& put) {
  stored.record = put.record;
  return absl::OkStatus();
}

absl::Status Apply(StoredDeployment& stored, const ReserveEpoch& reserve) {
  if (reserve.epoch <= stored.high_water) {
    return StoreConflict(reserve,
                         absl::StrFormat("epoch %d is not above %d, the last number given out",
                                         reserve.epoch.value, stored.high_water.value));
  }
  // Never lowered, so that an aborted number stays used up (I10).
  stored.high_water = reserve.epoch;
  return absl::OkStatus();
}

absl::Status Apply(StoredDeployment& stored, const CommitPlan& commit) {
  // Plans ascend, so the last one is the highest.
  const bool has_plan = !stored.plans.empty() && stored.plans.back().epoch >= commit.epoch;
  if (commit.epoch != stored.high_water || has_plan) {
    return StoreConflict(
        commit,
        absl::StrFormat("epoch %d cannot be committed: the last number given out is %d, and it %s",
                        commit.epoch.value, stored.high_water.value,
                        has_plan ? "has a plan already" : "has no plan"));
  }
  stored.plans.push_back({commit.epoch, commit.hash, commit.plan});
  return absl::OkStatus();
}

absl::Status Apply(StoredDeployment& stored, const MarkServing& mark) {
  const bool has_plan =
      std::any_of(stored.plans.begin(), stored.plans.end(),
                  [&mark](const StoredPlan& plan) { return plan.epoch == mark.epoch; });
  if (!has_plan)
    return StoreConflict(mark, absl::StrFormat("epoch %d has no plan", mark.epoch.value));
  // A repeated mark must not drop the plan that served before: `serving` is this epoch already.
  if (stored.serving == mark.epoch) return absl::OkStatus();
  // Sources may still hold the plan that served before; older ones cannot be in use.
  std::erase_if(stored.plans, [&](const StoredPlan& plan) {
    return plan.epoch < mark.epoch && plan.epoch != stored.serving;
  });
  stored.serving = mark.epoch;
  return absl::OkStatus();
}

}  // namespace

absl::Status MemoryStore::Write(const StoreWrite& write) {
  // The same conditions as in SQLite, so that the simulation finds what would be a conflict there.
  const std::string& name = DeploymentOf(write);
  if (std::holds_alternative<PutDeployment>(write)) deployments_[name].deployment = name;
  const auto it = deployments_.find(name);
  // Only PutDeployment adds one.
  if (it == deployments_.end()) return StoreConflict(write, "the deployment does not exist");
  return std::visit([&it](const auto& w) { return Apply(it->second, w); }, write);
}

absl::StatusOr<std::vector<StoredDeployment>> MemoryStore::Load() {
  std::vector<StoredDeployment> all;
  for (const auto& [name, stored] : deployments_) all.push_back(stored);
  return all;
}

}  // namespace switchyard
