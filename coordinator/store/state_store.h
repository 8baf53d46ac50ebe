// The seam for state stores, which keep the coordinator's decisions across restarts.
//
// For each deployment a store keeps: its record (opaque bytes), the highest epoch number given out,
// the epoch that was last announced to sources ("serving"), and the plans from the one that served
// before it upwards. Besides, it keeps the duties of workers, and the highest number of any
// deployment that was deleted. Each write is one atomic, durable change. After OK it survives a
// crash of the process or the machine. After an error it may have happened or not, and Load shows
// which.
//
// Each write has a condition, so that two coordinators that share a store by mistake do no harm: an
// epoch number is given out once, and a plan is stored only under the number given out last.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/store/worker_duty.h"
#include "core/base/hash.h"
#include "core/ids.h"

namespace switchyard {

// Adds a deployment or replaces its record. One that is added starts above the numbers of all that
// were deleted, since workers and sources may still hold epochs under the same name. No condition.
struct PutDeployment {
  std::string deployment;
  std::string record;
};
// Gives out `epoch`. Condition: the deployment exists, and `epoch` is above all given out before.
struct ReserveEpoch {
  std::string deployment;
  Epoch epoch;
};
// Stores the plan of `epoch`. Condition: `epoch` was given out last and has no plan yet.
struct CommitPlan {
  std::string deployment;
  Epoch epoch;
  PlanHash hash;
  std::string plan;  // its canonical bytes
};
// Every worker has committed the plan of `epoch`: from now on sources may learn of it. Drops older
// plans except the one that served before. Condition: the plan is stored. Idempotent, because the
// coordinator repeats it after an error.
struct MarkServing {
  std::string deployment;
  Epoch epoch;
};
// Removes the deployment and its plans; its numbers stay used up. No condition: idempotent, because
// the coordinator repeats it after an error.
struct DeleteDeployment {
  std::string deployment;
};
// kServe forgets the worker. No condition.
struct PutWorkerDuty {
  std::string worker;
  WorkerDuty duty = WorkerDuty::kServe;
};
using StoreWrite = std::variant<PutDeployment, ReserveEpoch, CommitPlan, MarkServing,
                                DeleteDeployment, PutWorkerDuty>;

struct StoredPlan {
  Epoch epoch;
  PlanHash hash;
  std::string plan;
  friend bool operator==(const StoredPlan&, const StoredPlan&) = default;
};
struct StoredDeployment {
  std::string deployment;
  std::string record;
  // The highest number given out; 0: none.
  Epoch high_water;
  Epoch serving;                  // 0: none
  std::vector<StoredPlan> plans;  // ascending by epoch
  friend bool operator==(const StoredDeployment&, const StoredDeployment&) = default;
};
struct StoredState {
  std::vector<StoredDeployment> deployments;  // ascending by name
  // The highest number that a deleted deployment gave out; 0: none was deleted.
  Epoch deleted_high_water;
  WorkerDuties duties;  // without kServe
};

// Implementations need no locks of their own: the driver calls them from one thread at a time.
class StateStore {
 public:
  virtual ~StateStore() = default;
  // Errors: kFailedPrecondition (STORE_WRITE) when the condition is not met: nothing has changed;
  // kUnavailable (STORE_WRITE) when it could not be made durable. Blocks for the disk.
  virtual absl::Status Write(const StoreWrite& write) = 0;
  // Everything. Errors: kUnavailable (STORE_WRITE).
  virtual absl::StatusOr<StoredState> Load() = 0;
};

// The error for a write to `deployment` whose condition is not met. `what` says which.
absl::Status StoreConflict(const std::string& deployment, const std::string& what);

}  // namespace switchyard
