// Threads for work that blocks, which gRPC's own threads must not do. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "core/base/mutex.h"

namespace switchyard {

class ThreadPool {
 public:
  // Threads are made when they are first needed, at most `threads_max`.
  explicit ThreadPool(std::size_t threads_max) : threads_max_(threads_max) {}
  // Waits for every task that was taken.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // In the order of the calls, when a thread is free. How many wait is the caller's to bound.
  void Run(std::function<void()> task);
  // False, and the task is dropped, when every thread is busy.
  bool TryRun(std::function<void()> task);

 private:
  void Work();
  void Take(std::function<void()> task) SY_REQUIRES(mutex_);

  const std::size_t threads_max_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ SY_GUARDED_BY(mutex_);
  std::size_t idle_ SY_GUARDED_BY(mutex_) = 0;
  bool stopping_ SY_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
