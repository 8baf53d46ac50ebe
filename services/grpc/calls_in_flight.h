// Counts the running calls of one gRPC channel, so that the channel is destroyed after them. A call
// holds its channel until it ends. If the last channel of a process were then released on one of
// gRPC's own threads, gRPC 1.51 would deadlock, because that thread would join itself.
#pragma once

#include <condition_variable>
#include <mutex>

namespace switchyard {

class CallsInFlight {
 public:
  CallsInFlight() = default;
  // Waits for every call to end; all must have been detached. Must not run on a thread of gRPC.
  ~CallsInFlight() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return calls_ == 0; });
  }
  CallsInFlight(const CallsInFlight&) = delete;
  CallsInFlight& operator=(const CallsInFlight&) = delete;

  // Call when a call starts, and when it has released its channel.
  void Enter() {
    const std::lock_guard lock(mutex_);
    ++calls_;
  }
  void Leave() {
    const std::lock_guard lock(mutex_);
    --calls_;
    // Under the lock: the destructor may otherwise return, and destroy the condition variable,
    // before it is notified.
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;  // guarded by mutex_; calls between Enter and Leave
};

}  // namespace switchyard
