// A mutex, its locks and a condition variable that clang's -Wthread-safety can check
// (`make thread-safety`). They add nothing to std::mutex at run time, and ThreadSanitizer sees it.
//
//   Mutex mutex_;
//   int rows_ SY_GUARDED_BY(mutex_) = 0;
//   void Take() SY_REQUIRES(mutex_);
//
//   const MutexLock lock(mutex_);
//   while (rows_ == 0) changed_.Wait(mutex_);  // not a lambda: the analysis does not look into one
//
// The analysis knows members by name: mark what a mutex guards, or it checks nothing. Under g++ the
// marks are empty.
#pragma once

#include <condition_variable>
#include <mutex>

#include "core/base/clock.h"

#if defined(__clang__)
#define SY_THREAD_ANNOTATION_(x) __attribute__((x))
#else
#define SY_THREAD_ANNOTATION_(x)
#endif

// On a member: it (SY_GUARDED_BY), or the object it points to, is used only with the mutex held.
#define SY_GUARDED_BY(mutex) SY_THREAD_ANNOTATION_(guarded_by(mutex))
#define SY_PT_GUARDED_BY(mutex) SY_THREAD_ANNOTATION_(pt_guarded_by(mutex))
// On a function: the caller holds the mutexes, or must not hold them.
#define SY_REQUIRES(...) SY_THREAD_ANNOTATION_(requires_capability(__VA_ARGS__))
#define SY_EXCLUDES(...) SY_THREAD_ANNOTATION_(locks_excluded(__VA_ARGS__))
// On a function whose locking the analysis cannot follow. A comment says why.
#define SY_NO_THREAD_SAFETY_ANALYSIS SY_THREAD_ANNOTATION_(no_thread_safety_analysis)

// For this header: functions that take or release a mutex themselves.
#define SY_ACQUIRE(...) SY_THREAD_ANNOTATION_(acquire_capability(__VA_ARGS__))
#define SY_RELEASE(...) SY_THREAD_ANNOTATION_(release_capability(__VA_ARGS__))
#define SY_TRY_ACQUIRE(...) SY_THREAD_ANNOTATION_(try_acquire_capability(__VA_ARGS__))

namespace switchyard {

// Not recursive. Constant-initialized, so a member needs no order of construction.
class SY_THREAD_ANNOTATION_(capability("mutex")) Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() SY_ACQUIRE() { mutex_.lock(); }
  void Unlock() SY_RELEASE() { mutex_.unlock(); }
  // True when the mutex was free and is now held.
  [[nodiscard]] bool TryLock() SY_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  // Declares to the analysis that this thread holds the mutex where it cannot follow, as in a
  // callback under a lock. Does nothing at run time.
  void AssertHeld() const SY_THREAD_ANNOTATION_(assert_capability(this)) {}

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds the mutex as long as it lives.
class SY_THREAD_ANNOTATION_(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) SY_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() SY_RELEASE() { mutex_.Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Holds the mutex as long as it lives, but for the time between Unlock() and Lock().
class SY_THREAD_ANNOTATION_(scoped_lockable) UniqueLock {
 public:
  // Lock and Unlock may follow in turn, each only in its state.
  explicit UniqueLock(Mutex& mutex) SY_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~UniqueLock() SY_RELEASE() {
    if (held_) mutex_.Unlock();
  }
  UniqueLock(const UniqueLock&) = delete;
  UniqueLock& operator=(const UniqueLock&) = delete;

  void Lock() SY_ACQUIRE() {
    mutex_.Lock();
    held_ = true;
  }
  void Unlock() SY_RELEASE() {
    held_ = false;
    mutex_.Unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

// std::condition_variable over a Mutex. Every wait can end without a notification: call it in a
// loop that looks at what it waits for.
class CondVar {
 public:
  CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;

  // The adopted lock lends the mutex to std::condition_variable for the wait; release() takes it
  // back.
  void Wait(Mutex& mutex) SY_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    changed_.wait(lock);
    lock.release();
  }
  // False when the deadline has passed; true otherwise, also without a notification.
  bool WaitUntil(Mutex& mutex, TimePoint deadline) SY_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.mutex_, std::adopt_lock);
    const bool in_time = changed_.wait_until(lock, deadline) == std::cv_status::no_timeout;
    lock.release();
    return in_time;
  }
  // With or without the mutex held.
  void NotifyOne() { changed_.notify_one(); }
  void NotifyAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace switchyard
