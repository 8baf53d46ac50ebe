#include "core/base/mutex.h"

#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

// A counter that every annotation of the header stands on: `make thread-safety` reads this file
// too.
class Tickets {
 public:
  void Put(int tickets) SY_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    tickets_ += tickets;
    changed_.NotifyAll();
  }
  void Take() SY_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (tickets_ == 0) changed_.Wait(mutex_);
    TakeHeld();
  }
  bool TakeUntil(TimePoint deadline) SY_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    while (tickets_ == 0) {
      if (!changed_.WaitUntil(mutex_, deadline) && tickets_ == 0) return false;
    }
    TakeHeld();
    return true;
  }
  bool TryTake() SY_EXCLUDES(mutex_) {
    if (!mutex_.TryLock()) return false;
    const bool any = tickets_ > 0;
    if (any) TakeHeld();
    mutex_.Unlock();
    return any;
  }
  // Runs `body` with the mutex given back.
  template <typename Body>
  int TakeAround(Body body) SY_EXCLUDES(mutex_) {
    UniqueLock lock(mutex_);
    TakeHeld();
    lock.Unlock();
    body();
    lock.Lock();
    return tickets_;
  }

 private:
  void TakeHeld() SY_REQUIRES(mutex_) { --tickets_; }

  Mutex mutex_;
  CondVar changed_;
  int tickets_ SY_GUARDED_BY(mutex_) = 0;
};

TEST(MutexTest, KeepsThreadsApart) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 1000;
  Tickets tickets;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&] {
        for (int i = 0; i < kRounds; ++i) tickets.Put(1);
      });
      threads.emplace_back([&] {
        for (int i = 0; i < kRounds; ++i) tickets.Take();
      });
    }
  }

  EXPECT_FALSE(tickets.TryTake()) << "as many were taken as were put";
}

TEST(CondVarTest, AWaitEndsWithItsDeadline) {
  Tickets tickets;
  const auto soon = [] { return std::chrono::steady_clock::now() + std::chrono::milliseconds(1); };

  EXPECT_FALSE(tickets.TakeUntil(soon()));
  tickets.Put(1);
  EXPECT_TRUE(tickets.TakeUntil(soon()));
}

TEST(UniqueLockTest, GivesTheMutexBackInBetween) {
  Tickets tickets;
  tickets.Put(2);
  bool taken = false;

  const int left = tickets.TakeAround([&] { taken = tickets.TryTake(); });

  EXPECT_TRUE(taken) << "the mutex was free inside";
  EXPECT_EQ(left, 0);
}

}  // namespace
}  // namespace switchyard
