#include "coordinator/threads/serial_executor.h"

#include <deque>
#include <thread>
#include <utility>

#include "core/base/mutex.h"

namespace switchyard {

// Shared with the thread, which may outlive the executor when a task does not end.
struct SerialExecutor::Shared {
  Mutex mutex;
  CondVar changed;
  std::deque<std::function<void()>> tasks SY_GUARDED_BY(mutex);
  bool stopping SY_GUARDED_BY(mutex) = false;
  bool ended SY_GUARDED_BY(mutex) = false;
  std::thread thread SY_GUARDED_BY(mutex);

  static void Loop(const std::shared_ptr<Shared>& self) {
    UniqueLock lock(self->mutex);
    while (true) {
      // Stopped, it still runs what is queued; Stop has emptied the queue if that was to be
      // dropped.
      while (!self->stopping && self->tasks.empty()) self->changed.Wait(self->mutex);
      if (self->tasks.empty()) break;
      // Moved out and run without the lock: Run must never wait for a disk.
      std::function<void()> task = std::move(self->tasks.front());
      self->tasks.pop_front();
      lock.Unlock();
      task();
      task = nullptr;  // Without the lock: what it owns may be slow to destroy.
      lock.Lock();
    }
    // Stop waits for this and not for the thread, which cannot be joined with a deadline.
    self->ended = true;
    self->changed.NotifyAll();
  }
};

SerialExecutor::SerialExecutor() : shared_(std::make_shared<Shared>()) {
  shared_->thread = std::thread([shared = shared_] { Shared::Loop(shared); });
}

SerialExecutor::~SerialExecutor() {
  bool stopped = false;
  {
    const MutexLock lock(shared_->mutex);
    stopped = shared_->stopping;
  }
  // 24 h stand for "no deadline": the deadline overflows with the largest duration.
  Stop(Pending::kFinish, stopped ? Duration{} : Duration(std::chrono::hours(24)));
  // A task that does not end must not keep the process from ending.
  if (shared_->thread.joinable()) shared_->thread.detach();
}

bool SerialExecutor::Run(std::function<void()> task) {
  const MutexLock lock(shared_->mutex);
  if (shared_->stopping) return false;
  shared_->tasks.push_back(std::move(task));
  shared_->changed.NotifyAll();
  return true;
}

bool SerialExecutor::Stop(Pending pending, Duration deadline) {
  std::deque<std::function<void()>> dropped;  // destroyed without the lock
  UniqueLock lock(shared_->mutex);
  shared_->stopping = true;
  // Queued tasks have not begun; destroying them may run code that needs the lock.
  if (pending == Pending::kDrop) dropped.swap(shared_->tasks);
  shared_->changed.NotifyAll();
  const TimePoint until = std::chrono::steady_clock::now() + deadline;
  while (!shared_->ended) {
    if (!shared_->changed.WaitUntil(shared_->mutex, until) && !shared_->ended) return false;
  }
  // Exchanged, so that only one of several callers joins it; joined without the lock, which the
  // thread needs to end.
  std::thread thread = std::exchange(shared_->thread, std::thread());
  lock.Unlock();
  if (thread.joinable()) thread.join();
  return true;
}

}  // namespace switchyard
