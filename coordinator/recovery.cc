#include "coordinator/recovery.h"

#include <algorithm>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/status_macros.h"
#include "core/plan.h"

namespace switchyard {
namespace {

// Nothing is repaired: a coordinator that guesses could number an epoch twice (I10).
absl::Status Damaged(const StoredDeployment& stored, const std::string& what) {
  return MakeError(absl::StatusCode::kDataLoss, Reason::kStoreWrite,
                   absl::StrFormat("store, deployment %s: %s; restore the store from a copy or "
                                   "start with an empty one",
                                   stored.deployment, what),
                   {{"deployment", stored.deployment}});
}

// Everything is checked, although the store is this coordinator's own: a plan that does not match
// its hash would be announced under a hash that no worker holds, and every attach would fail.
absl::StatusOr<std::shared_ptr<const PlanUpdate>> ReadPlan(const StoredDeployment& stored,
                                                           const StoredPlan& plan) {
  absl::StatusOr<Plan> parsed = ParsePlan(plan.plan);
  if (!parsed.ok() || HashOf(*parsed) != plan.hash || parsed->epoch != plan.epoch ||
      parsed->deployment != stored.deployment || !ValidatePlan(*parsed).ok()) {
    return Damaged(stored, absl::StrFormat("the plan of epoch %d is damaged", plan.epoch.value));
  }
  return std::make_shared<const PlanUpdate>(PlanUpdate{*std::move(parsed), plan.hash});
}

absl::StatusOr<Revisions> ReadRevisions(const StoredDeployment& stored, const StoredState& all,
                                        ReadCheckpoints* read) {
  Revisions::List list;
  for (const StoredRevision& one : stored.revisions) {
    SY_ASSIGN_OR_RETURN(Revision revision, FromStored(one, all.checkpoints, read));
    list.push_back(std::move(revision));
  }
  return Revisions(std::move(list));
}

absl::StatusOr<RecoveredDeployment> RecoverOne(const StoredDeployment& stored,
                                               const StoredState& all, ReadCheckpoints* read) {
  RecoveredDeployment recovered;
  SY_ASSIGN_OR_RETURN(recovered.record, ParseDeploymentRecord(stored.record));
  if (recovered.record.spec.name != stored.deployment) {
    return Damaged(stored, "its record belongs to another deployment");
  }
  SY_ASSIGN_OR_RETURN(recovered.revisions, ReadRevisions(stored, all, read));
  // Numbers up to here are used up, whether their plans exist or not.
  recovered.high_water = stored.high_water;
  for (const StoredPlan& plan : stored.plans) {
    // The hash distinguishes an older format from damage.
    if (IsOlderPlan(plan.plan) && Sha256(plan.plan) == plan.hash) {
      // Kept for the log: the operator has to know why the deployment starts over.
      recovered.older.push_back(plan.epoch);
      continue;
    }
    SY_ASSIGN_OR_RETURN(std::shared_ptr<const PlanUpdate> update, ReadPlan(stored, plan));
    // The store keeps the one that served before, the serving one, and at most one above it.
    if (plan.epoch < stored.serving) {
      recovered.served_before = std::move(update);
    } else if (plan.epoch == stored.serving) {
      recovered.serving = std::move(update);
    } else {
      recovered.committed = std::move(update);  // Ascending, so that the last one counts.
    }
  }
  // An epoch is marked as serving only when its plan is stored, so that a missing plan is damage.
  // To start all the same would plan anew over epochs that workers and sources use.
  const bool serving_is_older = std::find(recovered.older.begin(), recovered.older.end(),
                                          stored.serving) != recovered.older.end();
  if (stored.serving.value != 0 && recovered.serving == nullptr && !serving_is_older) {
    return Damaged(stored, absl::StrFormat("the plan of the serving epoch %d is missing",
                                           stored.serving.value));
  }
  return recovered;
}

}  // namespace

absl::StatusOr<RecoveredState> Recover(const StoredState& stored) {
  RecoveredState state{{}, stored.deleted_high_water, stored.duties, {}};
  ReadCheckpoints read;
  for (const StoredDeployment& one : stored.deployments) {
    // One damaged deployment stops all of them: the operator decides, not the coordinator.
    SY_ASSIGN_OR_RETURN(RecoveredDeployment recovered, RecoverOne(one, stored, &read));
    state.deployments.push_back(std::move(recovered));
  }
  for (const auto& [name, record] : stored.applies) {
    SY_ASSIGN_OR_RETURN(DeploymentRecord applied, ParseDeploymentRecord(record));
    state.applies.push_back(std::move(applied.spec));
  }
  return state;
}

std::optional<PutDeployment> Upgrade(RecoveredDeployment* recovered, Rng* rng) {
  DeploymentRecord& record = recovered->record;
  const bool has_revision = recovered->revisions.Find(record.revision) != nullptr;
  if (has_revision && !record.grant_key.empty()) return std::nullopt;
  if (record.grant_key.empty()) record.grant_key = GrantKey::Random(rng);
  if (has_revision) return PutDeployment{record.spec.name, CanonicalBytes(record)};
  record.revision = std::max<std::uint64_t>(record.revision, 1);
  // When it was applied, nobody knows.
  Revision first{.number = record.revision,
                 .spec = record.spec,
                 .facts = recovered->revisions.Share(record.facts)};
  PutDeployment put{record.spec.name, CanonicalBytes(record), ToStored(first)};
  recovered->revisions.Add(std::move(first), {});
  return put;
}

}  // namespace switchyard
