// Suppresses repeated warnings: each reason is reported once per process, whichever layer or step
// meets it first. main owns one and passes it down; nothing is global. Thread-safe.
#pragma once

#include <set>
#include <string>

#include "absl/strings/string_view.h"

#include "core/base/mutex.h"

namespace switchyard {

// Grows by one string for each distinct reason, of which a closed list exists: it is never cleared.
class OnceSet {
 public:
  // True for the first call with `reason`, false for all later ones; of two threads at the same
  // time, for exactly one.
  bool First(absl::string_view reason) {
    const MutexLock lock(mutex_);
    return seen_.emplace(reason).second;
  }

 private:
  Mutex mutex_;
  std::set<std::string> seen_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
