#include "harness/interrupt_guard.h"

#include <pthread.h>
#include <unistd.h>
#include <utility>

namespace switchyard {
namespace {

constexpr int kSignalExitBase = 128;  // the convention of shells for a process ended by a signal

}  // namespace

InterruptGuard::InterruptGuard() {
  sigemptyset(&watched_);
  sigaddset(&watched_, SIGINT);
  sigaddset(&watched_, SIGTERM);
  sigaddset(&watched_, SIGUSR2);  // from the destructor: ends the guard's thread
  pthread_sigmask(SIG_BLOCK, &watched_, &before_);
  thread_ = std::thread([this] { Run(); });
}

InterruptGuard::~InterruptGuard() {
  // To the guard's thread, which is the only one that waits for it.
  pthread_kill(thread_.native_handle(), SIGUSR2);
  thread_.join();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void InterruptGuard::OnSignal(std::function<void()> clean_up) {
  const MutexLock lock(mutex_);
  clean_up_ = std::move(clean_up);
}

void InterruptGuard::Run() {
  int signal = 0;
  sigwait(&watched_, &signal);
  if (signal == SIGUSR2) return;
  // The lock is kept until the process ends, so that OnSignal cannot replace a running clean-up.
  const MutexLock lock(mutex_);
  if (clean_up_) clean_up_();
  // _exit, because static destructors must not run while other threads still use their objects.
  _exit(kSignalExitBase + signal);
}

}  // namespace switchyard
