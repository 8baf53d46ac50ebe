// A thread that makes, maps and frees the memory of links, so that no thread that serves steps has
// to (Transport::RunAside). It starts with the first work. Its priority is a little lower than
// theirs, and not the lowest: while it waits for a CPU with a lock of the kernel or of the heap,
// they may wait too. Thread-safe.
#pragma once

#include <deque>
#include <functional>
#include <thread>

#include "core/base/mutex.h"

namespace switchyard {

class MemoryThread {
 public:
  MemoryThread() = default;
  ~MemoryThread() { Stop(); }
  MemoryThread(const MemoryThread&) = delete;
  MemoryThread& operator=(const MemoryThread&) = delete;

  // Runs `work` and destroys it there, after everything that was given before. What waits is
  // bounded by what links can ask for: to be made, to meet their peer, to be freed. After Stop:
  // destroys `work` here, without running it. Where no thread can be started: runs it here.
  void Run(std::function<void()> work);
  // Waits for the work that runs; the rest is destroyed, here and without running it.
  void Stop();

 private:
  void RunAll();
  // Starts the thread if there is none. False if that fails.
  bool HasThread() SY_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ SY_GUARDED_BY(mutex_);
  bool stopping_ SY_GUARDED_BY(mutex_) = false;
  std::thread thread_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
