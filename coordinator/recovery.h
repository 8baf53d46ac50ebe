// Turns what the store kept of each deployment back into records and plans. Pure; thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "coordinator/history/revisions.h"
#include "coordinator/spec/deployment_record.h"
#include "coordinator/store/state_store.h"
#include "coordinator/store/worker_duty.h"
#include "core/ids.h"
#include "core/rng.h"
#include "core/session_messages.h"

namespace switchyard {

// Plans are not converted from one version's format to the next, because that would change their
// hash, which workers and sources compare. A plan of an older format is left out, and the
// deployment gets a new plan under the next number as soon as its workers have registered.
struct RecoveredDeployment {
  DeploymentRecord record;
  // Numbers up to this one are used up.
  Epoch high_water;
  std::shared_ptr<const PlanUpdate> serving;        // null: none was announced
  std::shared_ptr<const PlanUpdate> served_before;  // null: not stored
  // Durable and above `serving`: some workers may have been sent COMMIT for it. Null: none.
  std::shared_ptr<const PlanUpdate> committed;
  // The numbers of plans that were left out, ascending.
  std::vector<Epoch> older;
  // Without that of the record, if an earlier version wrote it.
  Revisions revisions;
};

struct RecoveredState {
  std::vector<RecoveredDeployment> deployments;  // ascending by name
  Epoch deleted_high_water;                      // of StoredState
  WorkerDuties duties;
  std::vector<DeploymentSpec> applies = {};  // that were not done, ascending by name
};

// Errors: kDataLoss (STORE_WRITE) for a record, apply or plan that neither this version nor an
// earlier one wrote, a plan that does not match its hash, or a serving epoch without its plan.
absl::StatusOr<RecoveredState> Recover(const StoredState& stored);

// Adds what records of earlier versions lack: a key for grants, and a revision. Returns the write
// that the store needs for it; nullopt: it lacks nothing.
std::optional<PutDeployment> Upgrade(RecoveredDeployment* recovered, Rng* rng);

}  // namespace switchyard
