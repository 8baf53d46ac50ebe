// How much is broken for good: the largest thing that a failure has cost.
//
// Retry decides on the code, membership on the scope: a bad request says nothing of its worker, a
// lost device takes the whole process. Carried as a Status payload; absent means kRequest.
#pragma once

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace switchyard {

enum class FailureScope {
  kRequest = 0,       // this call alone; try again or give up
  kPeer = 1,          // the edge to one peer
  kCommunicator = 2,  // a whole group of ranks: a new epoch is needed
  kWorker = 3,        // this process: restart it
};

absl::string_view FailureScopeName(FailureScope scope);
absl::Status WithScope(absl::Status status, FailureScope scope);
FailureScope ScopeOf(const absl::Status& status);

}  // namespace switchyard
