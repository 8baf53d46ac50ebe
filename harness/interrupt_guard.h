// SIGINT and SIGTERM of a program that owns a local deployment: clean up, then end.
#pragma once

#include <functional>
#include <mutex>
#include <signal.h>
#include <thread>

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
  std::mutex mutex_;
  std::function<void()> clean_up_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace switchyard
