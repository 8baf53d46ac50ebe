#include "coordinator/placement/placement_policy.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {

absl::Status NoRoom(const PlacementWorker& worker, std::int64_t bytes) {
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
      absl::StrFormat("worker %s would hold %d bytes of weights but has room for %d; add workers "
                      "or memory",
                      worker.id, bytes, worker.free_bytes),
      {{"worker", worker.id},
       {"want", absl::StrCat(bytes)},
       {"have", absl::StrCat(worker.free_bytes)}});
}

}  // namespace switchyard
