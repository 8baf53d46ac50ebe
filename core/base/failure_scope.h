// The largest thing that a failure has broken permanently.
//
// Retries depend on the code, membership on the scope: a bad request says nothing about its worker,
// while a lost device makes the whole process useless. Carried as a Status payload; absent means
// kRequest.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace switchyard {

// Ascending: a larger value breaks more.
enum class FailureScope {
  kRequest = 0,       // only this call; try again or give up
  kPeer = 1,          // the edge to one peer
  kCommunicator = 2,  // a whole group of ranks: a new epoch is needed
  kWorker = 3,        // this process: restart it
};

// "request", "peer", "communicator", "worker".
absl::string_view FailureScopeName(FailureScope scope);
// `status` with its scope replaced. An OK status is returned as it is.
absl::Status WithScope(absl::Status status, FailureScope scope);
// kRequest when `status` is OK, carries no scope, or carries one that this version does not know.
FailureScope ScopeOf(const absl::Status& status);

}  // namespace switchyard
