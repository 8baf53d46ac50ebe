#include "coordinator/store/state_store.h"

#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {

const std::string& DeploymentOf(const StoreWrite& write) {
  return std::visit([](const auto& w) -> const std::string& { return w.deployment; }, write);
}

// A single coordinator cannot cause it: it numbers epochs above everything that it loaded or wrote.
absl::Status StoreConflict(const StoreWrite& write, const std::string& what) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kStoreWrite,
      absl::StrFormat("store, deployment %s: %s; another coordinator may be writing to "
                      "this store: run only one of them",
                      DeploymentOf(write), what),
      {{"deployment", DeploymentOf(write)}});
}

}  // namespace switchyard
