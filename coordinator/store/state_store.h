// The seam that makes the coordinator's decisions outlive it.
//
// A store keeps, for each deployment: its record (opaque bytes), the highest epoch number given
// out, the epoch that was last announced to sources ("serving"), and the plans from the serving one
// before it upwards. Each write is one atomic, durable change: after OK it survives a crash of the
// process or machine; after an error it may or may not have happened, and Load tells.
//
// Conditions make two coordinators that share a store by mistake harmless: an epoch number is given
// out once, and a plan is committed only under the number that was given out last.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/hash.h"
#include "core/ids.h"

namespace switchyard {

// Makes a deployment or replaces its record.
struct PutDeployment {
  std::string deployment;
  std::string record;
};
// Gives out `epoch`. Needs: the deployment is there, `epoch` is above every one given out before.
struct ReserveEpoch {
  std::string deployment;
  Epoch epoch;
};
// Makes the plan of `epoch` durable. Needs: `epoch` was given out last and has no plan yet.
struct CommitPlan {
  std::string deployment;
  Epoch epoch;
  PlanHash hash;
  std::string plan;  // its canonical bytes
};
// The plan of `epoch` is committed on all of its workers; sources may be told from now on. Drops
// older plans but the one that served before it. Needs: the plan is there. Idempotent.
struct MarkServing {
  std::string deployment;
  Epoch epoch;
};
using StoreWrite = std::variant<PutDeployment, ReserveEpoch, CommitPlan, MarkServing>;

struct StoredPlan {
  Epoch epoch;
  PlanHash hash;
  std::string plan;
  friend bool operator==(const StoredPlan&, const StoredPlan&) = default;
};
struct StoredDeployment {
  std::string deployment;
  std::string record;
  Epoch high_water;               // highest number given out; 0: none
  Epoch serving;                  // 0: none
  std::vector<StoredPlan> plans;  // ascending by epoch
  friend bool operator==(const StoredDeployment&, const StoredDeployment&) = default;
};

class StateStore {
 public:
  virtual ~StateStore() = default;
  // Errors: kFailedPrecondition (STORE_WRITE) when the write's needs are not met, and nothing has
  // changed; kUnavailable (STORE_WRITE) when it could not be made durable. Blocks for the disk.
  virtual absl::Status Write(const StoreWrite& write) = 0;
  // All deployments, ascending by name. Errors: kUnavailable (STORE_WRITE).
  virtual absl::StatusOr<std::vector<StoredDeployment>> Load() = 0;
};

// The deployment that `write` is about.
const std::string& DeploymentOf(const StoreWrite& write);

// The error for a write whose needs are not met.
absl::Status StoreConflict(const StoreWrite& write, const std::string& what);

}  // namespace switchyard
