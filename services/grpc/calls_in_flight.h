// The calls of one gRPC channel. The channel's owner has it destroyed after this has waited for
// them: a call holds its channel to the end, and gRPC 1.51 does not bear that the last channel of a
// process goes on a thread of gRPC's own (that thread would join itself).
#pragma once

#include <condition_variable>
#include <mutex>

namespace switchyard {

class CallsInFlight {
 public:
  CallsInFlight() = default;
  // Waits for every call; they have been detached. Not on a thread of gRPC's.
  ~CallsInFlight() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return calls_ == 0; });
  }
  CallsInFlight(const CallsInFlight&) = delete;
  CallsInFlight& operator=(const CallsInFlight&) = delete;

  void Enter() {
    const std::lock_guard lock(mutex_);
    ++calls_;
  }
  void Leave() {
    const std::lock_guard lock(mutex_);
    --calls_;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;  // guarded by mutex_
};

}  // namespace switchyard
