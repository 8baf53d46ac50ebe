// Counts the running calls of one gRPC channel, so that the channel is destroyed after them. A call
// holds its channel until it ends. If the last channel of a process were then released on one of
// gRPC's own threads, gRPC 1.51 would deadlock, because that thread would join itself.
#pragma once

#include "core/base/check.h"
#include "core/base/mutex.h"

namespace switchyard {

// Thread-safe. Its owner is the channel's owner, and destroys it before the channel.
class CallsInFlight {
 public:
  CallsInFlight() = default;
  // Waits for every call to end; all must have been detached. Must not run on a thread of gRPC.
  ~CallsInFlight() {
    const MutexLock lock(mutex_);
    while (calls_ > 0) changed_.Wait(mutex_);
  }
  CallsInFlight(const CallsInFlight&) = delete;
  CallsInFlight& operator=(const CallsInFlight&) = delete;

  // Call when a call starts, and when it has released its channel: once each.
  void Enter() {
    const MutexLock lock(mutex_);
    ++calls_;
  }
  void Leave() {
    const MutexLock lock(mutex_);
    SY_CHECK(calls_ > 0, "Leave() without Enter()");
    --calls_;
    // Under the lock: the destructor may otherwise return, and destroy the condition variable,
    // before it is notified.
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int calls_ SY_GUARDED_BY(mutex_) = 0;
};

}  // namespace switchyard
