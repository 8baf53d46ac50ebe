#include "worker/transport/memory_thread.h"

#include <utility>

namespace switchyard {

void MemoryThread::Run(std::function<void()> work) {
  const MutexLock lock(mutex_);
  if (stopping_) return;
  queue_.push_back(std::move(work));
  if (!thread_.joinable()) thread_ = std::thread([this] { RunAll(); });
  changed_.NotifyAll();
}

void MemoryThread::RunAll() {
  for (;;) {
    // Its destructor frees memory, and so runs without the mutex.
    std::function<void()> work;
    {
      const MutexLock lock(mutex_);
      while (queue_.empty() && !stopping_) changed_.Wait(mutex_);
      if (stopping_) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

void MemoryThread::Stop() {
  std::thread thread;
  std::deque<std::function<void()>> rest;
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    thread = std::move(thread_);
    rest.swap(queue_);
    changed_.NotifyAll();
  }
  if (thread.joinable()) thread.join();
}

}  // namespace switchyard
