#include "worker/transport/sleeper.h"

#include <chrono>
#include <cstdint>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using SteadyTime = std::chrono::steady_clock;

std::unique_ptr<Sleeper> MakeSleeper(const Sleeper::WorkFds& work_fds = Sleeper::kNoWorkFds,
                                     Duration spin = {}) {
  auto sleeper = Sleeper::Create(work_fds, spin);
  SY_EXPECT_OK(sleeper);
  return std::move(sleeper).value();
}

TEST(SleeperTest, AWakeBeforeArmIsNoticedOnce) {
  const auto sleeper = MakeSleeper();
  sleeper->Wake();
  sleeper->Wake();

  EXPECT_FALSE(sleeper->Arm());
  EXPECT_TRUE(sleeper->Arm());
  sleeper->Wait(Duration::zero());
  EXPECT_TRUE(sleeper->TakeTimeout());
  EXPECT_FALSE(sleeper->TakeTimeout());
}

TEST(SleeperTest, AWakeBetweenArmAndWaitEndsTheSleep) {
  const auto sleeper = MakeSleeper();
  ASSERT_TRUE(sleeper->Arm());
  sleeper->Wake();
  const auto start = SteadyTime::now();

  sleeper->Wait(seconds(20));

  EXPECT_LT(SteadyTime::now() - start, seconds(10));
  EXPECT_FALSE(sleeper->TakeTimeout());
}

TEST(SleeperTest, AnotherThreadsArmDoesNotHideAWake) {
  const auto sleeper = MakeSleeper();
  ASSERT_TRUE(sleeper->Arm());  // this thread is about to sleep
  sleeper->Wake();

  // Another thread arms meanwhile, and again: it sees the wake-up and must not clear it.
  EXPECT_FALSE(sleeper->Arm());
  EXPECT_FALSE(sleeper->Arm());
  const auto start = SteadyTime::now();
  sleeper->Wait(seconds(20));

  EXPECT_LT(SteadyTime::now() - start, seconds(10)) << "the wake was lost";
  EXPECT_FALSE(sleeper->Arm()) << "nobody is armed: this one clears it";
  EXPECT_TRUE(sleeper->Arm());
  sleeper->Wait(Duration::zero());
}

TEST(SleeperTest, WorkEndsTheSleepWithAndWithoutSpinning) {
  const EventFd work(::eventfd(0, EFD_NONBLOCK));
  for (const Duration spin : {Duration::zero(), Duration(milliseconds(1))}) {
    const auto sleeper = MakeSleeper({-1, work.get()}, spin);
    ASSERT_TRUE(sleeper->Arm());
    const auto start = SteadyTime::now();
    std::jthread other([&] {
      const std::uint64_t one = 1;
      ASSERT_EQ(::write(work.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
    });

    sleeper->Wait(seconds(20));

    EXPECT_LT(SteadyTime::now() - start, seconds(10));
    EXPECT_FALSE(sleeper->TakeTimeout());
    other.join();
    std::uint64_t count = 0;
    ASSERT_EQ(::read(work.get(), &count, sizeof(count)), static_cast<ssize_t>(sizeof(count)));
  }
}

TEST(SleeperTest, SpinningIsPartOfTheTimeAndBounded) {
  const auto sleeper = MakeSleeper(Sleeper::kNoWorkFds, seconds(100));
  ASSERT_TRUE(sleeper->Arm());
  const auto start = SteadyTime::now();

  sleeper->Wait(milliseconds(5));

  EXPECT_LT(SteadyTime::now() - start, seconds(10));
  EXPECT_TRUE(sleeper->TakeTimeout());
}

}  // namespace
}  // namespace switchyard
