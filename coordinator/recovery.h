// Reads back what the store kept of each deployment.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "coordinator/deployment.h"
#include "coordinator/store/state_store.h"
#include "core/ids.h"
#include "core/session_messages.h"

namespace switchyard {

struct RecoveredDeployment {
  DeploymentRecord record;
  Epoch high_water;
  std::shared_ptr<const PlanNews> serving;        // null: none was announced
  std::shared_ptr<const PlanNews> served_before;  // null: not kept
  // Durable and above `serving`: some workers may have been told to commit it. Null: none.
  std::shared_ptr<const PlanNews> committed;
};

// Errors: kDataLoss (STORE_WRITE) for a record or plan that this version did not write, a plan that
// does not match its hash, or a serving epoch without its plan.
absl::StatusOr<std::vector<RecoveredDeployment>> Recover(
    const std::vector<StoredDeployment>& stored);

}  // namespace switchyard
