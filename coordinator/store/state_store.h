// The seam for state stores, which keep the coordinator's decisions across restarts.
//
// For each deployment a store keeps: its record (opaque bytes), the highest epoch number given out,
// the epoch that was last announced to sources ("serving"), and the plans from the one that served
// before it upwards, and its revisions (coordinator/history/revisions.h). Besides, it keeps the
// duties of workers, applies that are not done, and the highest number of any deployment that was
// deleted. Each write is one
// atomic, durable change. After OK it survives a crash of the process or the machine. After an
// error it may have happened or not, and Load shows which.
//
// Each write has a condition, so that two coordinators that share a store by mistake do no harm: an
// epoch number is given out once, and a plan is stored only under the number given out last.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "coordinator/store/worker_duty.h"
#include "core/base/hash.h"
#include "core/ids.h"

namespace switchyard {

// One revision. Both texts are opaque, like records. The checkpoint is apart, because it is large
// and most revisions of a deployment share theirs.
struct NewRevision {
  std::uint64_t number = 0;
  std::string revision;
  std::string checkpoint;
};
// Adds a deployment or replaces its record. One that is added starts above the numbers of all that
// were deleted, since workers and sources may still hold epochs under the same name. No condition.
struct PutDeployment {
  std::string deployment;
  std::string record;
  // Added to its revisions, in the place of one of the same number.
  std::optional<NewRevision> revision = {};
  // Numbers of revisions to drop.
  std::vector<std::uint64_t> forget = {};
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
  // The plan was made from it, or would be the same; 0, or one that is not stored: not known.
  std::uint64_t revision = 0;
};
// Removes the deployment, its plans and its revisions; its numbers stay used up. No condition:
// idempotent, because the coordinator repeats it after an error.
struct DeleteDeployment {
  std::string deployment;
};
// kServe forgets the worker. No condition.
struct PutWorkerDuty {
  std::string worker;
  WorkerDuty duty = WorkerDuty::kServe;
};
// An apply that goes on also after a restart: `record` is opaque. PutDeployment and
// DeleteDeployment of that name end it, and so does an empty record. No condition.
struct PutApply {
  std::string deployment;
  std::string record;
};
using StoreWrite = std::variant<PutDeployment, ReserveEpoch, CommitPlan, MarkServing,
                                DeleteDeployment, PutWorkerDuty, PutApply>;

struct StoredPlan {
  Epoch epoch;
  PlanHash hash;
  std::string plan;
  friend bool operator==(const StoredPlan&, const StoredPlan&) = default;
};
struct StoredRevision {
  std::uint64_t number = 0;
  Epoch served;  // of the last MarkServing that named it; 0: none did
  std::string revision;
  Sha256Digest checkpoint;  // a key of StoredState::checkpoints
  friend bool operator==(const StoredRevision&, const StoredRevision&) = default;
};
struct StoredDeployment {
  std::string deployment;
  std::string record;
  // The highest number given out; 0: none.
  Epoch high_water;
  Epoch serving;                               // 0: none
  std::vector<StoredPlan> plans;               // ascending by epoch
  std::vector<StoredRevision> revisions = {};  // ascending by number
  friend bool operator==(const StoredDeployment&, const StoredDeployment&) = default;
};
struct StoredState {
  std::vector<StoredDeployment> deployments;  // ascending by name
  // Those that revisions refer to, by their SHA-256.
  std::map<Sha256Digest, std::string> checkpoints;
  // The highest number that a deleted deployment gave out; 0: none was deleted.
  Epoch deleted_high_water;
  WorkerDuties duties;                              // without kServe
  std::map<std::string, std::string> applies = {};  // records of PutApply, by deployment
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
