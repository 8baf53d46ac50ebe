#include "worker/transport/memory_thread.h"

#include <sys/resource.h>
#include <system_error>
#include <utility>

namespace switchyard {
namespace {

// As of nice(1).
constexpr int kNice = 5;

}  // namespace

void MemoryThread::Run(std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    if (stopping_) return;
    if (HasThread()) {
      queue_.push_back(std::move(work));
      changed_.NotifyAll();
      return;
    }
  }
  work();
}

bool MemoryThread::HasThread() {
  try {
    if (!thread_.joinable()) thread_ = std::thread([this] { RunAll(); });
  } catch (const std::system_error&) {
    // The process has as many threads as it may: what has to be done is done by the caller, late.
  }
  return thread_.joinable();
}

void MemoryThread::RunAll() {
  // Linux sets it for the calling thread alone.
  (void)::setpriority(PRIO_PROCESS, 0, kNice);
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
