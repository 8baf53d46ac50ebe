#include "services/grpc/thread_pool.h"

#include <utility>

namespace switchyard {

ThreadPool::~ThreadPool() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  Take(std::move(task));
}

bool ThreadPool::TryRun(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  // Tasks in the queue will take idle threads as well, so both are compared.
  if (idle_ <= tasks_.size() && threads_.size() == threads_max_) return false;
  Take(std::move(task));
  return true;
}

void ThreadPool::Take(std::function<void()> task) {
  tasks_.push_back(std::move(task));
  if (idle_ < tasks_.size() && threads_.size() < threads_max_) {
    // A new thread counts as idle before it runs; otherwise the next task would start another
    // thread for this one.
    ++idle_;
    threads_.emplace_back([this] { Work(); });
  }
  changed_.notify_one();
}

void ThreadPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !tasks_.empty() || stopping_; });
    // Run the remaining tasks before stopping: the destructor promises to finish them.
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_;
    lock.unlock();
    task();
    task = nullptr;  // Destroy its captures before the thread counts as free.
    lock.lock();
    ++idle_;
  }
}

}  // namespace switchyard
