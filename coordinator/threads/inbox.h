// The bounded queue of events in front of the driver's thread (coordinator/driver.h). Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <utility>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/mutex.h"

namespace switchyard {

// The answer to every call while or after the coordinator shuts down.
inline absl::Status CoordinatorStopped() {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost,
                   "the coordinator is shutting down; try again");
}

// Many threads push, one takes. The consumer takes everything at once, so that the lock is held for
// a moment only, however many events wait.
template <typename Event>
class Inbox {
 public:
  explicit Inbox(std::size_t max) : max_(max) {}

  // For requests from outside. Errors: kResourceExhausted (NO_CREDITS) when `max` events wait, so
  // that a flood of requests cannot exhaust the memory; kUnavailable (COORDINATOR_LOST) after Stop.
  absl::Status TryPush(Event event) {
    const MutexLock lock(mutex_);
    if (stopped_) return CoordinatorStopped();
    if (events_.size() >= max_) {
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                       "the coordinator is overloaded; retry later");
    }
    events_.push_back(std::move(event));
    changed_.NotifyOne();
    return absl::OkStatus();
  }
  // For events that must not get lost: answers and ends. The requests before them bound their
  // number, so that they need no limit. Dropped after Stop.
  void Push(Event event) {
    const MutexLock lock(mutex_);
    if (stopped_) return;
    events_.push_back(std::move(event));
    changed_.NotifyOne();
  }

  // Waits at most `timeout` for events. Returns none after Stop.
  std::deque<Event> TakeAll(Duration timeout) {
    const TimePoint deadline = std::chrono::steady_clock::now() + timeout;
    const MutexLock lock(mutex_);
    while (!stopped_ && events_.empty() && changed_.WaitUntil(mutex_, deadline)) {
    }
    return std::exchange(events_, {});
  }

  // Drops what waits and wakes the consumer. Later pushes are refused or dropped.
  void Stop() {
    std::deque<Event> dropped;  // without the lock: what they hold may call anybody
    const MutexLock lock(mutex_);
    stopped_ = true;
    dropped.swap(events_);
    changed_.NotifyOne();
  }
  [[nodiscard]] bool stopped() const {
    const MutexLock lock(mutex_);
    return stopped_;
  }

 private:
  const std::size_t max_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::deque<Event> events_ SY_GUARDED_BY(mutex_);
  bool stopped_ SY_GUARDED_BY(mutex_) = false;
};

}  // namespace switchyard
