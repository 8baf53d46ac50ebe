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
  absl::StatusOr<std::vector<StoredDeployment>> Load() override;

 private:
  // By name, as Load returns them.
  std::map<std::string, StoredDeployment> deployments_;
};

}  // namespace switchyard
