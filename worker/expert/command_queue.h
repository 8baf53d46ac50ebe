// Commands for a thread that must not be held up, and calls that wait for their answer with a
// deadline.
//
//   caller: Call --queued--> owner: RunAll --running--> done --> caller
//                  \--deadline--> abandoned: it will never run
//
// A call that has begun to run is waited for, so an answer is never lost: after "no answer" the
// caller knows that nothing was done. Thread-safe; the owner must not use Call itself, because it
// would wait for itself.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace switchyard {

class CommandQueue {
 public:
  // `wake` ends the owner's sleep; it is called without a lock and from any thread. At most
  // `calls_max` calls wait at once.
  CommandQueue(std::function<void()> wake, std::size_t calls_max)
      : wake_(std::move(wake)), calls_max_(calls_max) {}

  // Queues a command and does not wait. Not bounded: only the few commands of an epoch's life use
  // it. False after Close: the command will not run.
  bool Post(std::function<void()> command);

  // Runs `work` on the owner's thread and gives back what it says. Errors besides those of `work`:
  // kResourceExhausted (NO_CREDITS) when too many calls wait; kUnavailable (NO_CREDITS) when the
  // owner did not come to it in `timeout`; kUnavailable (SESSION_CLOSED) after Close. `work` has
  // not run then, and never will.
  template <typename Result>  // absl::Status or absl::StatusOr<T>
  Result Call(Duration timeout, std::function<Result()> work) {
    std::optional<Result> result;
    const absl::Status called = CallAndWait(timeout, [&] { result.emplace(work()); });
    if (!called.ok()) return called;
    return *std::move(result);
  }

  // On the owner's thread: runs all that is queued. True if there was anything; costs one load when
  // there is nothing.
  bool RunAll();
  [[nodiscard]] bool empty() const { return !queued_.load(std::memory_order_acquire); }
  // Every call that waits, and every later one, is answered as above.
  void Close();

 private:
  enum class State : std::uint8_t { kQueued, kRunning, kDone, kAbandoned };
  struct Command {
    std::function<void()> work;
    State state = State::kQueued;
    bool is_call = false;
  };

  absl::Status CallAndWait(Duration timeout, std::function<void()> work);

  std::function<void()> wake_;
  const std::size_t calls_max_;
  // Whether queue_ holds anything. It is written with mutex_ held and read without, so that an idle
  // poll takes no lock.
  std::atomic<bool> queued_{false};
  Mutex mutex_;  // also guards every Command's state
  CondVar done_;
  std::vector<std::shared_ptr<Command>> queue_ SY_GUARDED_BY(mutex_);
  std::size_t calls_waiting_ SY_GUARDED_BY(mutex_) = 0;
  bool closed_ SY_GUARDED_BY(mutex_) = false;
};

}  // namespace switchyard
