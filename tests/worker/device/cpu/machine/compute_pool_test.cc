#include "worker/device/cpu/machine/compute_pool.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

std::unique_ptr<ComputePool> MakePool(int threads) {
  auto pool = ComputePool::Create(threads);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return std::move(pool).value();
}

TEST(ComputePoolTest, CallsEachIndexOnceAndShowsWhatTheCallsWrote) {
  for (const int threads : {1, 2, 4}) {
    const auto pool = MakePool(threads);
    EXPECT_EQ(pool->threads(), threads);
    for (const std::int64_t count : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2},
                                     std::int64_t{97}, ComputePool::kIndicesMax}) {
      std::vector<int> calls(static_cast<std::size_t>(count), 0);

      pool->Run(count, [&](std::int64_t index, int thread) {
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, threads);
        ++calls[static_cast<std::size_t>(index)];  // Not atomic: each index has one caller.
      });

      EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(count), 1)) << threads;
    }
  }
}

TEST(ComputePoolTest, HelpersTakeAShareOfWorkThatWaitsForThem) {
  const auto pool = MakePool(2);
  std::atomic<int> inside{0};

  // Each of two calls ends only when the other has begun: one thread alone could not finish.
  pool->Run(2, [&](std::int64_t, int) {
    inside.fetch_add(1);
    while (inside.load() < 2) std::this_thread::yield();
  });

  EXPECT_EQ(inside.load(), 2);
}

TEST(ComputePoolTest, StopsWithTheIndicesThatWereBegun) {
  for (const int threads : {1, 2, 4}) {
    const auto pool = MakePool(threads);
    for (int job = 0; job < 2'000; ++job) {
      const std::int64_t count = 1 + job % 50;
      const int most = 1 + job % 7;  // of the caller
      std::vector<int> calls(static_cast<std::size_t>(count), 0);
      int asked = 0;

      const std::int64_t begun = pool->RunUntil(
          count, [&](std::int64_t index, int) { ++calls[static_cast<std::size_t>(index)]; },
          [&] { return ++asked == most; });

      ASSERT_GE(begun, 1);
      ASSERT_LE(begun, count);
      // Each index below `begun` once, and none above.
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(calls[static_cast<std::size_t>(i)], i < begun ? 1 : 0)
            << i << " of " << begun << ", " << threads << " threads";
      }
      if (threads == 1) {
        ASSERT_EQ(begun, std::min<std::int64_t>(count, most));
      }
    }
  }
}

TEST(ComputePoolTest, ManyShortJobsNeitherLoseNorRepeatAnIndex) {
  const auto pool = MakePool(3);
  for (int job = 0; job < 5'000; ++job) {
    std::atomic<std::int64_t> sum{0};
    const std::int64_t count = 2 + job % 5;

    pool->Run(count, [&](std::int64_t index, int) { sum.fetch_add(index + 1); });

    ASSERT_EQ(sum.load(), count * (count + 1) / 2) << "job " << job;
  }
}

TEST(ComputePoolTest, TwoCallersAtOnceBothGetTheirWorkDone) {
  const auto pool = MakePool(2);
  std::atomic<int> wrong{0};
  const auto call_often = [&] {
    for (int job = 0; job < 2'000; ++job) {
      std::atomic<std::int64_t> sum{0};
      pool->Run(7, [&](std::int64_t index, int) { sum.fetch_add(index); });
      if (sum.load() != 21) wrong.fetch_add(1);
    }
  };

  std::thread other(call_often);
  call_often();
  other.join();

  EXPECT_EQ(wrong.load(), 0);
}

TEST(ComputePoolTest, ACallFromInsideACallRunsAlone) {
  const auto pool = MakePool(2);
  std::atomic<int> inner{0};

  pool->Run(4, [&](std::int64_t, int) {
    pool->Run(3, [&](std::int64_t, int thread) {
      EXPECT_EQ(thread, 0);
      inner.fetch_add(1);
    });
  });

  EXPECT_EQ(inner.load(), 12);
}

// With more threads than CPUs nobody spins: helpers sleep as soon as there is nothing to do.
TEST(ComputePoolTest, WakesHelpersThatSleep) {
  const int threads = static_cast<int>(std::thread::hardware_concurrency()) + 1;
  const auto pool = MakePool(threads);
  for (int round = 0; round < 50; ++round) {
    std::atomic<int> inside{0};

    pool->Run(2, [&](std::int64_t, int) {
      inside.fetch_add(1);
      while (inside.load() < 2) std::this_thread::yield();
    });

    ASSERT_EQ(inside.load(), 2) << "round " << round;
  }
}

}  // namespace
}  // namespace switchyard
