#include "services/grpc/thread_pool.h"

#include <utility>

namespace switchyard {

ThreadPool::~ThreadPool() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Run(std::function<void()> task) {
  const MutexLock lock(mutex_);
  Take(std::move(task));
}

bool ThreadPool::TryRun(std::function<void()> task) {
  const MutexLock lock(mutex_);
  // Idle threads that queued tasks will take do not count as free.
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
  changed_.NotifyOne();
}

void ThreadPool::Work() {
  UniqueLock lock(mutex_);
  while (true) {
    while (tasks_.empty() && !stopping_) changed_.Wait(mutex_);
    // Only when stopping: accepted tasks are run to the last one.
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_;
    lock.Unlock();
    task();
    task = nullptr;  // Its captures are destroyed before the thread counts as free.
    lock.Lock();
    ++idle_;
  }
}

}  // namespace switchyard
