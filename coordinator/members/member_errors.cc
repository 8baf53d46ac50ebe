#include "coordinator/members/member_errors.h"

#include <chrono>

#include "absl/strings/str_format.h"

#include "core/base/error.h"

namespace switchyard {

absl::Status Silent(const std::string& id, Duration lease_ttl) {
  return MakeError(
      absl::StatusCode::kUnavailable, Reason::kWorkerLost,
      absl::StrFormat("worker %s sent nothing for %d ms and counts as dead; register again", id,
                      std::chrono::duration_cast<std::chrono::milliseconds>(lease_ttl).count()),
      {{"worker", id}});
}

absl::Status Reconnected(const std::string& id) {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   absl::StrFormat("worker %s has registered again on another stream", id),
                   {{"worker", id}});
}

absl::Status HeldByAnother(const std::string& id, absl::string_view what) {
  return MakeError(absl::StatusCode::kAlreadyExists, Reason::kLeaseHeld,
                   absl::StrFormat("worker %s is in use by another live process; %s", id, what),
                   {{"worker", id}});
}

absl::Status Superseded(const std::string& id) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kIncarnation,
                   absl::StrFormat("worker %s: another process uses this id now; end this one, or "
                                   "give it an id of its own",
                                   id),
                   {{"worker", id}});
}

}  // namespace switchyard
