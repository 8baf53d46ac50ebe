// The store "memory": keeps its state as long as the object lives. For tests, the simulation and
// demonstrations; a coordinator with it starts with no deployment.
#pragma once

#include <map>
#include <string>

#include "coordinator/store/state_store.h"

namespace switchyard {

// Not thread-safe.
class MemoryStore final : public StateStore {
 public:
  absl::Status Write(const StoreWrite& write) override;
  absl::StatusOr<StoredState> Load() override;

 private:
  // The same conditions as in SQLite, so that the simulation finds what would be a conflict there.
  absl::Status Apply(const PutDeployment& put);
  absl::Status Apply(const ReserveEpoch& reserve);
  absl::Status Apply(const CommitPlan& commit);
  absl::Status Apply(const MarkServing& mark);
  absl::Status Apply(const DeleteDeployment& gone);
  absl::Status Apply(const PutWorkerDuty& put);
  absl::Status Apply(const PutApply& put);
  absl::StatusOr<StoredDeployment*> Find(const std::string& deployment);
  void DropUnusedCheckpoints();

  // By name, as Load returns them.
  std::map<std::string, StoredDeployment> deployments_;
  std::map<Sha256Digest, std::string> checkpoints_;
  Epoch deleted_high_water_;
  WorkerDuties duties_;
  std::map<std::string, std::string> applies_;
};

}  // namespace switchyard
