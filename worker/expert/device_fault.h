// The end of a worker's device, or of its transport, as its parts meet it.
//
// A device that has failed for good fails every later call with the same error. Whichever part of
// the expert role meets it first (a batch of requests, a run of the gateway's own sessions, the
// staging of an epoch) reports it, once: the process then ends, so that the coordinator places its
// experts elsewhere. So does an attach that no port is left for: every later one would fail too. A
// part that kept it to itself would leave a worker that is registered, answers the coordinator and
// serves nothing.
#pragma once

#include <atomic>
#include <functional>
#include <utility>

#include "absl/status/status.h"

#include "core/base/failure_scope.h"

namespace switchyard {

// True for an error that says that the device, or the transport, is gone.
inline bool IsDeviceFault(const absl::Status& status) {
  return !status.ok() && ScopeOf(status) == FailureScope::kWorker;
}

// Thread-safe.
class DeviceFaultReport {
 public:
  // `tell` may be empty. It comes from the thread that meets the fault first.
  explicit DeviceFaultReport(std::function<void(const absl::Status& why)> tell)
      : tell_(std::move(tell)) {}

  // Reports `status` if it is the first device fault.
  void Look(const absl::Status& status) {
    if (IsDeviceFault(status) && !told_.exchange(true) && tell_) tell_(status);
  }

 private:
  const std::function<void(const absl::Status& why)> tell_;
  std::atomic<bool> told_{false};
};

}  // namespace switchyard
