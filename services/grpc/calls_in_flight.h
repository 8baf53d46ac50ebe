// The calls of one gRPC channel. The channel's owner has it destroyed after this has waited for
// them: a call holds its channel to the end, and gRPC 1.51 does not bear that the last channel of a
// process goes on a thread of gRPC's own (that thread would join itself).
#pragma once

#include "core/base/check.h"
#include "core/base/mutex.h"

namespace switchyard {

class CallsInFlight {
 public:
  CallsInFlight() = default;
  // Waits for every call; they have been detached. Not on a thread of gRPC's.
  ~CallsInFlight() {
    const MutexLock lock(mutex_);
    while (calls_ > 0) changed_.Wait(mutex_);
  }
  CallsInFlight(const CallsInFlight&) = delete;
  CallsInFlight& operator=(const CallsInFlight&) = delete;

  void Enter() {
    const MutexLock lock(mutex_);
    ++calls_;
  }
  void Leave() {
    const MutexLock lock(mutex_);
    SY_CHECK(calls_ > 0, "Leave() without Enter()");
    --calls_;
    changed_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int calls_ SY_GUARDED_BY(mutex_) = 0;
};

}  // namespace switchyard
