// Threads for blocking work, which must not run on gRPC's own threads: they are few, and all calls
// of the process share them. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace switchyard {

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
  void Take(std::function<void()> task);

  const std::size_t threads_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<std::function<void()>> tasks_;
  std::size_t idle_ = 0;  // threads without a task, including those that are starting
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace switchyard
