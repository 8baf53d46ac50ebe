// Errors that streams of workers end with.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "core/base/clock.h"

namespace switchyard {

// kUnavailable (WORKER_LOST): it sent nothing for its lease.
absl::Status Silent(const std::string& id, Duration lease_ttl);
// kUnavailable (WORKER_LOST), for the former stream of a process that has opened another one.
absl::Status Reconnected(const std::string& id);
// kAlreadyExists (LEASE_HELD). `what`: the next thing to do.
absl::Status HeldByAnother(const std::string& id, absl::string_view what);
// kFailedPrecondition (INCARNATION): another process has taken over the id.
absl::Status Superseded(const std::string& id);

}  // namespace switchyard
