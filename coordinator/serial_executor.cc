#include "coordinator/serial_executor.h"

#include <deque>
#include <thread>
#include <utility>

#include "core/base/mutex.h"

namespace switchyard {

struct SerialExecutor::Shared {
  Mutex mutex;
  CondVar changed;
  std::deque<std::function<void()>> tasks SY_GUARDED_BY(mutex);
  bool stopping SY_GUARDED_BY(mutex) = false;
  bool ended SY_GUARDED_BY(mutex) = false;
  std::thread thread;  // the owner's

  static void Loop(const std::shared_ptr<Shared>& self) {
    UniqueLock lock(self->mutex);
    while (true) {
      while (!self->stopping && self->tasks.empty()) self->changed.Wait(self->mutex);
      if (self->tasks.empty()) break;
      std::function<void()> task = std::move(self->tasks.front());
      self->tasks.pop_front();
      lock.Unlock();
      task();
      task = nullptr;
      lock.Lock();
    }
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
  Stop(Pending::kFinish, stopped ? Duration{} : Duration(std::chrono::hours(24)));
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
  if (pending == Pending::kDrop) dropped.swap(shared_->tasks);
  shared_->changed.NotifyAll();
  const TimePoint until = std::chrono::steady_clock::now() + deadline;
  while (!shared_->ended) {
    if (!shared_->changed.WaitUntil(shared_->mutex, until) && !shared_->ended) return false;
  }
  std::thread thread = std::exchange(shared_->thread, std::thread());
  lock.Unlock();
  if (thread.joinable()) thread.join();
  return true;
}

}  // namespace switchyard
