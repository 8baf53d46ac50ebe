// Calls of the sources of this process that share a worker's rank, for when its steps have ended.
// Thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "core/base/mutex.h"

namespace switchyard {

class StepWakes {
 public:
  // Returns a number for Remove. `wake` returns quickly.
  std::uint64_t Add(std::function<void()> wake) {
    const MutexLock lock(mutex_);
    wakes_.emplace(++last_, std::move(wake));
    return last_;
  }
  // It is not called any more.
  void Remove(std::uint64_t number) {
    const MutexLock lock(mutex_);
    wakes_.erase(number);
  }
  void Call() {
    const MutexLock lock(mutex_);
    for (const auto& [number, wake] : wakes_) wake();
  }

 private:
  Mutex mutex_;
  std::uint64_t last_ SY_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::function<void()>> wakes_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
