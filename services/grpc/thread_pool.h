// Threads for blocking work, which must not run on gRPC's own threads: they are few, and all calls
// of the process share them. Thread-safe.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "core/base/mutex.h"

namespace switchyard {

// Tasks do not wait for tasks that are queued behind them, or all threads could wait at once.
class ThreadPool {
 public:
  // Starts threads on demand, at most `threads_max`.
  explicit ThreadPool(std::size_t threads_max) : threads_max_(threads_max) {}
  // Waits for every accepted task.
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Runs `task` when a thread is free, in the order of the calls. The queue is unbounded; the
  // caller must limit it.
  void Run(std::function<void()> task);
  // Runs `task` only if a thread is free now; otherwise drops it and returns false.
  bool TryRun(std::function<void()> task);

 private:
  // The threads' loop: runs tasks until the pool stops.
  void Work();
  // Queues a task and starts a thread if none is idle. mutex_ must be held.
  void Take(std::function<void()> task) SY_REQUIRES(mutex_);

  const std::size_t threads_max_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ SY_GUARDED_BY(mutex_);
  // Threads without a task, including those that are starting. Each queued task will take one of
  // them.
  std::size_t idle_ SY_GUARDED_BY(mutex_) = 0;
  // Threads then end once no task is left.
  bool stopping_ SY_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
