#include "services/grpc/thread_pool.h"

#include <atomic>
#include <latch>
#include <memory>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(ThreadPoolTest, RunsEveryTaskBeforeItIsGone) {
  std::atomic<int> ran = 0;
  {
    ThreadPool pool(3);
    for (int i = 0; i < 1000; ++i) pool.Run([&ran] { ++ran; });
  }
  EXPECT_EQ(ran, 1000);
}

TEST(ThreadPoolTest, TryRunRefusesWhenEveryThreadIsBusy) {
  std::latch started(2);
  std::latch go(1);
  std::atomic<int> ran = 0;
  ThreadPool pool(2);
  const auto busy = [&] {
    started.count_down();
    go.wait();
    ++ran;
  };

  EXPECT_TRUE(pool.TryRun(busy));
  EXPECT_TRUE(pool.TryRun(busy));
  EXPECT_FALSE(pool.TryRun([&ran] { ran = 100; }));
  started.wait();
  EXPECT_FALSE(pool.TryRun([&ran] { ran = 100; }));
  go.count_down();

  while (!pool.TryRun([&ran] { ++ran; })) std::this_thread::yield();
  while (ran < 3) std::this_thread::yield();
  EXPECT_EQ(ran, 3);
}

TEST(ThreadPoolTest, RunWaitsForAFreeThread) {
  std::latch go(1);
  std::atomic<int> order = 0;
  int second_saw = 0;
  {
    ThreadPool pool(1);
    pool.Run([&] {
      go.wait();
      order = 1;
    });
    pool.Run([&] { second_saw = order; });
    go.count_down();
  }
  EXPECT_EQ(second_saw, 1);
}

TEST(ThreadPoolTest, ATasksMemoryIsGoneWhenItsThreadIsFree) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> seen = held;
  ThreadPool pool(1);
  pool.Run([held = std::move(held)] {});

  while (!pool.TryRun([] {})) std::this_thread::yield();

  EXPECT_TRUE(seen.expired());
}

}  // namespace
}  // namespace switchyard
