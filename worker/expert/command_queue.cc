#include "worker/expert/command_queue.h"

#include <chrono>

#include "absl/strings/str_format.h"
#include "absl/time/time.h"

#include "core/base/error.h"

namespace switchyard {

bool CommandQueue::Post(std::function<void()> command) {
  {
    const MutexLock lock(mutex_);
    if (closed_) return false;
    queue_.push_back(std::make_shared<Command>(Command{.work = std::move(command)}));
    queued_.store(true, std::memory_order_release);
  }
  // Only after the lock is free: the owner starts by taking it.
  wake_();
  return true;
}

absl::Status CommandQueue::CallAndWait(Duration timeout, std::function<void()> work) {
  const auto command = std::make_shared<Command>(Command{.work = std::move(work), .is_call = true});
  {
    const MutexLock lock(mutex_);
    // The bound keeps a stalled data thread from collecting one blocked handler thread for each
    // request.
    if (!closed_ && calls_waiting_ >= calls_max_) {
      return MakeError(
          absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
          absl::StrFormat(
              "%d calls are waiting for the data thread, which is the limit; retry later",
              calls_waiting_));
    }
    if (!closed_) {
      queue_.push_back(command);
      queued_.store(true, std::memory_order_release);
      ++calls_waiting_;
    } else {
      command->state = State::kAbandoned;
    }
  }
  wake_();
  const TimePoint until = std::chrono::steady_clock::now() + timeout;
  const MutexLock lock(mutex_);
  while (command->state != State::kDone && command->state != State::kAbandoned &&
         done_.WaitUntil(mutex_, until)) {
  }
  // Taken out under the lock, so the owner cannot start it any more.
  if (command->state == State::kQueued) {
    command->state = State::kAbandoned;
    std::erase(queue_, command);
    --calls_waiting_;
    return MakeError(
        absl::StatusCode::kUnavailable, Reason::kNoCredits,
        absl::StrFormat("the data thread did not run the call within %d ms; retry later",
                        absl::ToInt64Milliseconds(absl::FromChrono(timeout))));
  }
  // A command that has begun ends soon by itself, and what it did counts: an answer of "not done"
  // would be wrong. So the deadline no longer applies.
  while (command->state == State::kRunning) done_.Wait(mutex_);
  if (command->state == State::kDone) return absl::OkStatus();
  return MakeError(absl::StatusCode::kUnavailable, Reason::kSessionClosed,
                   "the worker is stopping; attach elsewhere");
}

bool CommandQueue::RunAll() {
  if (empty()) return false;
  std::vector<std::shared_ptr<Command>> commands;
  {
    const MutexLock lock(mutex_);
    // The whole queue is taken at once. What a command queues runs in the next turn, so a command
    // that queues itself again cannot keep the owner from polling.
    commands.swap(queue_);
    queued_.store(false, std::memory_order_release);
  }
  for (const auto& command : commands) {
    {
      const MutexLock lock(mutex_);
      if (command->state != State::kQueued) continue;
      command->state = State::kRunning;
    }
    // Without the lock: `work` may take long, and callers go on queueing meanwhile.
    command->work();
    const MutexLock lock(mutex_);
    command->state = State::kDone;
    if (command->is_call) --calls_waiting_;
    done_.NotifyAll();
  }
  return !commands.empty();
}

void CommandQueue::Close() {
  const MutexLock lock(mutex_);
  closed_ = true;
  // A command that runs now is left to RunAll, which answers it.
  for (const auto& command : queue_) {
    if (command->state != State::kQueued) continue;
    command->state = State::kAbandoned;
    if (command->is_call) --calls_waiting_;
  }
  queue_.clear();
  done_.NotifyAll();
}

}  // namespace switchyard
