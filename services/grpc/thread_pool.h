// Threads for work that blocks, which gRPC's own threads must not do. Thread-safe.
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
  void Take(std::function<void()> task);  // mutex_ held

  const std::size_t threads_max_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // Guarded by mutex_.
  std::deque<std::function<void()>> tasks_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace switchyard
