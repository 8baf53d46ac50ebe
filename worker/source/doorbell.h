// Lets the threads of a Source without a transport sleep: Arm, Wait and Wake as of a Transport.
//
// It has no file descriptor, unlike worker/transport/sleeper.h, because here nothing but Wake ends
// a sleep. Thread-safe. Each Arm that returns true is followed by one Wait of the same thread.
#pragma once

#include <chrono>
#include <cstdint>

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace switchyard {

// Thread-safe. Each Arm that returns true is followed by one Wait of the same thread.
class Doorbell {
 public:
  // False after a Wake that some thread has yet to notice.
  bool Arm() {
    const MutexLock lock(mutex_);
    if (rung_) {
      // A ring stays visible until every thread that was armed before it has left its Wait.
      if (armed_ == 0) rung_ = false;
      return false;
    }
    ++armed_;
    return true;
  }
  // Sleeps until Wake, at most `max`. Returns at once when one came since Arm.
  void Wait(Duration max) {
    const TimePoint until = std::chrono::steady_clock::now() + max;
    const MutexLock lock(mutex_);
    while (!rung_ && woken_.WaitUntil(mutex_, until)) {
    }
    --armed_;
  }
  // From any thread; ends the sleep of every thread.
  void Wake() {
    {
      const MutexLock lock(mutex_);
      rung_ = true;
    }
    woken_.NotifyAll();
  }

 private:
  Mutex mutex_;
  CondVar woken_;
  // Set by Wake and cleared by the first Arm while no thread is armed.
  bool rung_ SY_GUARDED_BY(mutex_) = false;
  std::uint32_t armed_ SY_GUARDED_BY(mutex_) = 0;
};

}  // namespace switchyard
