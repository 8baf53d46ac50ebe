#include "coordinator/serial_executor.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace switchyard {

struct SerialExecutor::Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> tasks;
  bool stopping = false;
  bool ended = false;
  std::thread thread;

  static void Loop(const std::shared_ptr<Shared>& self) {
    std::unique_lock lock(self->mutex);
    while (true) {
      self->changed.wait(lock, [&self] { return self->stopping || !self->tasks.empty(); });
      if (self->tasks.empty()) break;
      std::function<void()> task = std::move(self->tasks.front());
      self->tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;
      lock.lock();
    }
    self->ended = true;
    self->changed.notify_all();
  }
};

SerialExecutor::SerialExecutor() : shared_(std::make_shared<Shared>()) {
  shared_->thread = std::thread([shared = shared_] { Shared::Loop(shared); });
}

SerialExecutor::~SerialExecutor() {
  bool stopped = false;
  {
    const std::lock_guard lock(shared_->mutex);
    stopped = shared_->stopping;
  }
  Stop(Pending::kFinish, stopped ? Duration{} : Duration(std::chrono::hours(24)));
  if (shared_->thread.joinable()) shared_->thread.detach();
}

bool SerialExecutor::Run(std::function<void()> task) {
  const std::lock_guard lock(shared_->mutex);
  if (shared_->stopping) return false;
  shared_->tasks.push_back(std::move(task));
  shared_->changed.notify_all();
  return true;
}

bool SerialExecutor::Stop(Pending pending, Duration deadline) {
  std::deque<std::function<void()>> dropped;  // destroyed without the lock
  std::unique_lock lock(shared_->mutex);
  shared_->stopping = true;
  if (pending == Pending::kDrop) dropped.swap(shared_->tasks);
  shared_->changed.notify_all();
  if (!shared_->changed.wait_for(lock, deadline, [this] { return shared_->ended; })) return false;
  std::thread thread = std::exchange(shared_->thread, std::thread());
  lock.unlock();
  if (thread.joinable()) thread.join();
  return true;
}

}  // namespace switchyard
