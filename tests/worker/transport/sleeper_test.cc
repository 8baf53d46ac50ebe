#include "worker/transport/sleeper.h"

#include <chrono>
#include <cstdint>
#include <fcntl.h>
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
                                     Duration busy_poll = {}) {
  auto sleeper = Sleeper::Create(work_fds, busy_poll);
  SY_EXPECT_OK(sleeper);
  return std::move(sleeper).value();
}

// What a peer does to a sleeping owner. False when the pipe is full.
bool WakeAsPeer(const Sleeper& sleeper) {
  const std::byte wake{0};
  return ::write(sleeper.peer_wake(), &wake, sizeof(wake)) == 1;
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

TEST(SleeperTest, WorkEndsTheSleep) {
  for (std::size_t at = 0; at < Sleeper::kNoWorkFds.size(); ++at) {
    const Descriptor work(::eventfd(0, EFD_NONBLOCK));
    Sleeper::WorkFds work_fds = Sleeper::kNoWorkFds;
    work_fds[at] = work.get();
    const auto sleeper = MakeSleeper(work_fds);
    ASSERT_TRUE(sleeper->Arm());
    const auto start = SteadyTime::now();
    std::jthread other([&] {
      const std::uint64_t one = 1;
      ASSERT_EQ(::write(work.get(), &one, sizeof(one)), static_cast<ssize_t>(sizeof(one)));
    });

    sleeper->Wait(seconds(20));

    EXPECT_LT(SteadyTime::now() - start, seconds(10)) << at;
    EXPECT_FALSE(sleeper->TakeTimeout()) << at;
  }
}

TEST(SleeperTest, APeersByteEndsASleepAndTheNextArmTakesIt) {
  const auto sleeper = MakeSleeper();
  ASSERT_TRUE(sleeper->Arm());
  ASSERT_TRUE(WakeAsPeer(*sleeper));
  const auto start = SteadyTime::now();

  sleeper->Wait(seconds(20));

  EXPECT_LT(SteadyTime::now() - start, seconds(10));
  EXPECT_FALSE(sleeper->armed());
  EXPECT_TRUE(sleeper->Arm());
  EXPECT_TRUE(sleeper->armed());
  sleeper->Wait(Duration::zero());
  EXPECT_TRUE(sleeper->TakeTimeout()) << "taken once";
}

TEST(SleeperTest, PeersCannotHideAWake) {
  const auto sleeper = MakeSleeper();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(WakeAsPeer(*sleeper));
  sleeper->Wake();
  EXPECT_FALSE(sleeper->Arm());

  // Not even one that fills the pipe and makes writing to it block.
  int sent = 0;
  while (WakeAsPeer(*sleeper)) ++sent;
  EXPECT_GT(sent, 0);
  ASSERT_EQ(::fcntl(sleeper->peer_wake(), F_SETFL, 0), 0);
  const auto start = SteadyTime::now();
  sleeper->Wake();
  EXPECT_FALSE(sleeper->Arm());
  for (int sleeps = 0; sleeps < 1'000; ++sleeps) {
    ASSERT_TRUE(sleeper->Arm()) << "takes without waiting";
    sleeper->Wait(Duration::zero());
    if (sleeper->TakeTimeout()) break;
  }
  ASSERT_TRUE(sleeper->Arm());
  sleeper->Wake();
  sleeper->Wait(seconds(20));
  EXPECT_LT(SteadyTime::now() - start, seconds(10));
  EXPECT_FALSE(sleeper->TakeTimeout());
}

TEST(SleeperTest, DisarmsInsteadOfSleeping) {
  const auto sleeper = MakeSleeper();
  ASSERT_TRUE(sleeper->Arm());
  sleeper->Disarm();

  EXPECT_FALSE(sleeper->armed());
}

TEST(SleeperTest, PollsForAWhileAfterEachFrame) {
  const auto sleeper = MakeSleeper(Sleeper::kNoWorkFds, milliseconds(50));
  EXPECT_FALSE(sleeper->BusyPolls(0)) << "no frame so far";
  for (std::uint64_t frames = 1; frames < 3; ++frames) {
    const auto start = SteadyTime::now();
    ASSERT_TRUE(sleeper->BusyPolls(frames));

    while (sleeper->BusyPolls(frames)) {
      ASSERT_LT(SteadyTime::now() - start, seconds(10));
    }

    EXPECT_GE(SteadyTime::now() - start, milliseconds(50));
  }
}

TEST(SleeperTest, DoesNotPollUnlessAsked) { EXPECT_FALSE(MakeSleeper()->BusyPolls(7)); }

}  // namespace
}  // namespace switchyard
