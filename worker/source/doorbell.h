// How the threads of a Source without a transport sleep: Arm, Wait and Wake as of a Transport.
//
// It has no file descriptor, unlike worker/transport/sleeper.h, because here nothing but Wake ends
// a sleep.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "core/base/clock.h"

namespace switchyard {

// Thread-safe. Each Arm that returns true is followed by one Wait of the same thread.
class Doorbell {
 public:
  // False after a Wake that some thread has yet to notice.
  bool Arm() {
    const std::lock_guard<std::mutex> lock(mutex_);
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
    std::unique_lock<std::mutex> lock(mutex_);
    woken_.wait_for(lock, max, [this] { return rung_; });
    --armed_;
  }
  // From any thread; ends the sleep of every thread.
  void Wake() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      rung_ = true;
    }
    woken_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable woken_;
  bool rung_ = false;        // guarded by mutex_
  std::uint32_t armed_ = 0;  // guarded by mutex_
};

}  // namespace switchyard
