// Handles SIGINT and SIGTERM in a program that owns a local deployment: cleans up, then exits.
#pragma once

#include <functional>
#include <signal.h>
#include <thread>

#include "core/base/mutex.h"

namespace switchyard {

// Create it before any other thread, so that all threads inherit the blocked signals. At most one
// may exist in a process. On a signal it runs the clean-up and ends the process with exit code 128
// + the signal's number. It uses a thread instead of a signal handler, because the clean-up takes
// locks.
class InterruptGuard {
 public:
  InterruptGuard();
  // Restores the previous signal mask.
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  // Sets the clean-up. It runs on the guard's thread, at most once; everything that it uses must
  // outlive the guard.
  void OnSignal(std::function<void()> clean_up);

 private:
  // The guard's thread: waits for a signal.
  void Run();

  sigset_t watched_{};
  sigset_t before_{};
  Mutex mutex_;
  std::function<void()> clean_up_ SY_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace switchyard
