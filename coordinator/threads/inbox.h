// The bounded queue of events in front of the driver's thread (coordinator/driver.h). Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <utility>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/base/error.h"

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
    const std::lock_guard lock(mutex_);
    if (stopped_) return CoordinatorStopped();
    if (events_.size() >= max_) {
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
                       "the coordinator is overloaded; retry later");
    }
    events_.push_back(std::move(event));
    changed_.notify_one();
    return absl::OkStatus();
  }
  // For events that must not get lost: answers and ends. The requests before them bound their
  // number, so that they need no limit. Dropped after Stop.
  void Push(Event event) {
    const std::lock_guard lock(mutex_);
    if (stopped_) return;
    events_.push_back(std::move(event));
    changed_.notify_one();
  }

  // Waits at most `timeout` for events. Returns none after Stop.
  std::deque<Event> TakeAll(Duration timeout) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [this] { return stopped_ || !events_.empty(); });
    return std::exchange(events_, {});
  }

  // Drops what waits and wakes the consumer. Later pushes are refused or dropped.
  void Stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    events_.clear();
    changed_.notify_one();
  }
  [[nodiscard]] bool stopped() const {
    const std::lock_guard lock(mutex_);
    return stopped_;
  }

 private:
  const std::size_t max_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  bool stopped_ = false;
};

}  // namespace switchyard
