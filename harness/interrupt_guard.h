// SIGINT and SIGTERM of a program that owns a local deployment: clean up, then end.
#pragma once

#include <functional>
#include <signal.h>
#include <thread>

#include "core/base/mutex.h"

namespace switchyard {

// Made before any other thread, so that all of them inherit the blocked signals; one at a time in a
// process. On a signal it runs the clean-up and ends the process with 128 + the signal's number.
class InterruptGuard {
 public:
  InterruptGuard();
  // The signals do what they did before.
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // Runs on the guard's thread, at most once; whatever it touches must outlive the guard.
  void OnSignal(std::function<void()> clean_up);

 private:
  void Run();

  sigset_t watched_{};
  sigset_t before_{};
  Mutex mutex_;
  std::function<void()> clean_up_ SY_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace switchyard
