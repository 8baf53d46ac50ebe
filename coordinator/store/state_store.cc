#include "coordinator/store/state_store.h"

#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {

// A single coordinator cannot cause it: it numbers epochs above everything that it loaded or wrote.
absl::Status StoreConflict(const std::string& deployment, const std::string& what) {
  return MakeError(
      absl::StatusCode::kFailedPrecondition, Reason::kStoreWrite,
      absl::StrFormat("store, deployment %s: %s; another coordinator may be writing to "
                      "this store: run only one of them",
                      deployment, what),
      {{"deployment", deployment}});
}

}  // namespace switchyard
