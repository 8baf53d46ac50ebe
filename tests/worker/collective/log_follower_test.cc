// A worker's steps of a log, made by its thread and by sources of its process, and launches of
// their graphs, on a device that does nothing in a step.
#include "worker/collective/expert/log_follower.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/status_macros.h"
#include "core/rng.h"
#include "tests/testing/late_device.h"
#include "tests/testing/status_matchers.h"
#include "worker/collective/expert/hosted_rank.h"
#include "worker/collective/shared_log.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::LateDevice;

constexpr Duration kLong = std::chrono::seconds(20);
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr Duration kIdleAfter = std::chrono::milliseconds(100);

// Which group made a step of which layer, with how many tokens of this rank.
struct Made {
  char group = 0;
  std::int32_t layer = 0;
  std::int32_t tokens = 0;
  friend bool operator==(const Made&, const Made&) = default;
};

class MadeSteps {
 public:
  void Add(const Made& step) {
    const MutexLock lock(mutex_);
    steps_.push_back(step);
  }
  std::vector<Made> Get() const {
    const MutexLock lock(mutex_);
    return steps_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<Made> steps_ SY_GUARDED_BY(mutex_);
};

class Group final : public FollowedGroup, private Exchange {
 public:
  Group(char name, MadeSteps* made) : name_(name), made_(made) {}
  [[nodiscard]] Exchange& exchange() override { return *this; }
  absl::StatusOr<Experts> ExpertsOf(const LoggedStep& /*step*/) override { return Experts(); }
  void OnFailed(const absl::Status& why) override {
    const MutexLock lock(mutex_);
    why_ = why;
  }
  [[nodiscard]] Duration patience() const override { return kPatience; }
  // Why it has failed; OK if it has not `within` this time.
  absl::Status Failed(Duration within) {
    const TimePoint until = SteadyClock().Now() + within;
    for (;;) {
      {
        const MutexLock lock(mutex_);
        if (!why_.ok() || SteadyClock().Now() > until) return why_;
      }
      std::this_thread::yield();
    }
  }

 private:
  [[nodiscard]] const std::string& key() const override { return key_; }
  absl::Status Join(std::span<const std::string> /*keys*/, Duration /*patience*/) override {
    return absl::OkStatus();
  }
  absl::Status Step(Stream* /*stream*/, const ExchangeStep& step) override {
    made_->Add({.group = name_, .layer = step.layer.value, .tokens = step.tokens});
    return absl::OkStatus();
  }
  void Lose(std::int32_t /*rank*/) override {}
  [[nodiscard]] absl::Status Fault() const override { return absl::OkStatus(); }

  const char name_;
  MadeSteps* const made_;
  const std::string key_;
  Mutex mutex_;
  absl::Status why_ SY_GUARDED_BY(mutex_);
};

class LogFollowerTest : public ::testing::Test {
 protected:
  LogFollowerTest() {
    auto log = *SharedLog::Make("", &rng_);
    log_ = &log->log();
    follower_ = *LogFollower::Start({.device = device_.get(),
                                     .spin = Duration::zero(),
                                     .idle_after = kIdleAfter,
                                     .counts = &counts_},
                                    std::move(log));
    for (const std::uint32_t number : {0U, 1U}) follower_->Add(number, groups_[number]);
  }
  ~LogFollowerTest() override {
    stream_.Finish();
    follower_->Stop();
  }

  std::unique_ptr<SourceRank> RankOf(std::uint32_t number) {
    return std::make_unique<HostedRank>(HostedRank::Options{.service = nullptr,
                                                            .device = device_,
                                                            .follower = follower_,
                                                            .group = groups_[number],
                                                            .number = number,
                                                            .wake = [this] { ++wakes_; }});
  }
  static LoggedStep StepOf(std::uint32_t group, std::int32_t layer, std::int32_t cover = 8) {
    return {.group = group, .layer = LayerId{layer}, .cover = cover, .epoch = 1};
  }
  static LoggedStep LaunchOf(std::uint32_t group, std::int32_t steps) {
    return {.group = group, .layer = LoggedStep::kLaunch, .cover = steps, .epoch = 1};
  }
  static std::shared_ptr<const RecordedSteps> GraphOf(std::size_t steps) {
    auto graph = std::make_shared<RecordedSteps>();
    graph->experts.resize(steps);
    return graph;
  }
  // As another rank.
  void Append(const LoggedStep& step) {
    while (log_->Append(log_->end(), step) == StepLog::Appended::kTaken) std::this_thread::yield();
  }
  static absl::Status Submit(SourceRank& rank, const LoggedStep& step, std::int32_t tokens) {
    return rank.Use([&](RankTurn& turn) {
      return turn.MakeStep(step, {.step = {.tokens = tokens}}, TimePoint::min()).status();
    });
  }
  static absl::Status Begin(SourceRank& rank, std::size_t steps, LateDevice::ForeignQueue* stream) {
    const LoggedStep wanted = LaunchOf(rank.group(), static_cast<std::int32_t>(steps));
    return rank.Use([&](RankTurn& turn) {
      return turn.BeginLaunch(GraphOf(steps), wanted, stream, SteadyClock().Now() + kLong);
    });
  }
  static absl::StatusOr<std::uint64_t> End(SourceRank& rank, LateDevice::ForeignQueue* stream) {
    std::uint64_t first = 0;
    SY_RETURN_IF_ERROR(rank.Use([&](RankTurn& turn) {
      SY_ASSIGN_OR_RETURN(first, turn.EndLaunch(stream));
      return absl::OkStatus();
    }));
    return first;
  }
  static void Pass(Duration time) {
    const TimePoint until = SteadyClock().Now() + time;
    while (SteadyClock().Now() < until) std::this_thread::yield();
  }
  // Whether these were made, and nothing else, `within` this time.
  bool Makes(const std::vector<Made>& steps, Duration within = kLong) {
    const TimePoint until = SteadyClock().Now() + within;
    while (made_.Get() != steps) {
      if (SteadyClock().Now() > until) return false;
      std::this_thread::yield();
    }
    return true;
  }

  // That have ended as results.
  bool WaitForSteps(std::uint64_t steps) {
    const TimePoint until = SteadyClock().Now() + kLong;
    while (counts_.steps.load() < steps && SteadyClock().Now() < until) std::this_thread::yield();
    return counts_.steps.load() == steps;
  }

  std::atomic<int> wakes_{0};
  LateDevice::ForeignQueue stream_;  // of an engine; the device's work may still look at it
  SystemRng rng_;
  MadeSteps made_;
  GroupCounts counts_;
  std::shared_ptr<LateDevice> device_ = *LateDevice::Create({.precedes = true});
  std::vector<std::shared_ptr<Group>> groups_ = {std::make_shared<Group>('a', &made_),
                                                 std::make_shared<Group>('b', &made_)};
  StepLog* log_ = nullptr;  // the follower's
  std::shared_ptr<LogFollower> follower_;
};

TEST_F(LogFollowerTest, ASourceMakesTheStepsBeforeItsOwnAndJoinsThoseOfOthers) {
  const auto rank = RankOf(0);
  Append(StepOf(1, 5));  // of a group without a source here
  SY_ASSERT_OK(Submit(*rank, StepOf(0, 3), 4));
  Append(StepOf(0, 6));
  SY_ASSERT_OK(Submit(*rank, StepOf(0, 6, 2), 2));  // joins, though it meant a smaller one
  EXPECT_EQ(log_->end(), 3U);
  Append(StepOf(0, 7));
  SY_ASSERT_OK(Submit(*rank, StepOf(0, 8), 1));  // passes another layer's without tokens
  EXPECT_TRUE(Makes({{'b', 5, 0}, {'a', 3, 4}, {'a', 6, 2}, {'a', 7, 0}, {'a', 8, 1}}));
  EXPECT_EQ(rank->steps(), 4U);
}

// An event that is done at once needs no call; those of this device are late.
TEST_F(LogFollowerTest, ASourceHearsOfTheEndsOfSteps) {
  const auto rank = RankOf(0);
  for (std::uint64_t steps = 1; steps <= 50; ++steps) {
    SY_ASSERT_OK(Submit(*rank, StepOf(0, 3), 1));
    ASSERT_TRUE(WaitForSteps(steps));
  }
  const TimePoint until = SteadyClock().Now() + kLong;
  while (wakes_ == 0 && SteadyClock().Now() < until) std::this_thread::yield();
  EXPECT_GT(wakes_, 0);
}

TEST_F(LogFollowerTest, AStepIsLeftToTheSourceForAWhile) {
  auto rank = RankOf(0);
  Append(StepOf(0, 3));
  EXPECT_FALSE(Makes({{'a', 3, 0}}, kIdleAfter / 2));
  EXPECT_TRUE(Makes({{'a', 3, 0}}));
  rank.reset();  // nobody is waited for
  const auto begun = SteadyClock().Now();
  for (int i = 0; i < 4; ++i) Append(StepOf(0, 4));
  EXPECT_TRUE(Makes({{'a', 3, 0}, {'a', 4, 0}, {'a', 4, 0}, {'a', 4, 0}, {'a', 4, 0}}));
  EXPECT_LT(SteadyClock().Now() - begun, 4 * kIdleAfter);
}

TEST_F(LogFollowerTest, InStepItIsLeftForAsLongAsTheGroupWaits) {
  const auto rank = RankOf(0);
  const auto other = RankOf(1);
  groups_[0]->in_step.store(true);
  groups_[0]->source_epoch.store(1);
  Append(StepOf(0, 3));
  EXPECT_FALSE(Makes({{'a', 3, 0}}, 3 * kIdleAfter));
  // The caller may be the one that is waited for.
  EXPECT_THAT(Submit(*other, StepOf(1, 5), 1),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  SY_ASSERT_OK(Submit(*rank, StepOf(0, 3), 2));
  SY_ASSERT_OK(Submit(*other, StepOf(1, 5), 1));
  EXPECT_TRUE(Makes({{'a', 3, 2}, {'b', 5, 1}}));
  Append(StepOf(0, 4));
  EXPECT_TRUE(Makes({{'a', 3, 2}, {'b', 5, 1}, {'a', 4, 0}}, 5 * kPatience));
}

// As while plans change: the source has made its own step of that place already.
TEST_F(LogFollowerTest, InStepAStepOfAnotherPlanIsNotWaitedForLong) {
  const auto rank = RankOf(0);
  groups_[0]->in_step.store(true);
  SY_ASSERT_OK(Submit(*rank, StepOf(0, 3), 2));
  LoggedStep other = StepOf(0, 3);
  other.epoch = 2;
  const TimePoint begun = SteadyClock().Now();
  Append(other);
  EXPECT_TRUE(Makes({{'a', 3, 2}, {'a', 3, 0}}));
  EXPECT_LT(SteadyClock().Now() - begun, kPatience / 2);
}

// With graphs of a former plan open.
TEST_F(LogFollowerTest, ASourceThatKeepsLaunchesIsWaitedForInThoseOnly) {
  const auto rank = RankOf(0);
  groups_[0]->in_step.store(true);
  groups_[0]->source_epoch.store(1);
  rank->KeepLaunches();
  const TimePoint begun = SteadyClock().Now();
  for (int i = 0; i < 3; ++i) Append(StepOf(0, 3));
  EXPECT_TRUE(Makes({{'a', 3, 0}, {'a', 3, 0}, {'a', 3, 0}}));
  EXPECT_LT(SteadyClock().Now() - begun, 3 * kIdleAfter);
  Append(LaunchOf(0, 2));
  Pass(2 * kIdleAfter);
  stream_.Finish();
  SY_EXPECT_OK(Begin(*rank, 2, &stream_));
  SY_EXPECT_OK(End(*rank, &stream_).status());
}

TEST_F(LogFollowerTest, ASourceThatLeavesInALaunchHoldsUpNobody) {
  auto rank = RankOf(0);
  SY_ASSERT_OK(Begin(*rank, 3, &stream_));
  Append(StepOf(1, 5));
  const TimePoint begun = SteadyClock().Now();
  rank->Retire();
  EXPECT_TRUE(Makes({{'b', 5, 0}}));
  EXPECT_LT(SteadyClock().Now() - begun, kPatience / 2);
  EXPECT_THAT(End(*rank, &stream_), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST_F(LogFollowerTest, ALaunchIsInOrderWithAllSteps) {
  const auto rank = RankOf(0);
  Append(StepOf(1, 5));
  EXPECT_TRUE(WaitForSteps(1));
  SY_ASSERT_OK(Begin(*rank, 3, &stream_));
  Append(StepOf(1, 6));
  EXPECT_FALSE(Makes({{'b', 5, 0}, {'b', 6, 0}}, 3 * kIdleAfter));
  EXPECT_THAT(Submit(*RankOf(1), StepOf(1, 7), 1),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));

  SY_ASSERT_OK_AND_ASSIGN(const std::uint64_t first, End(*rank, &stream_));
  EXPECT_EQ(first, 0U);
  EXPECT_EQ(rank->steps(), 3U);
  EXPECT_TRUE(Makes({{'b', 5, 0}, {'b', 6, 0}}));
  // The device is not done with them before the graph is.
  EXPECT_EQ(counts_.steps.load(), 1U);
  stream_.Finish();
  EXPECT_TRUE(WaitForSteps(5)) << "one, three of the graph, one";

  // Another rank's, of the same number of steps, is this one's, too.
  Append(LaunchOf(0, 2));
  SY_ASSERT_OK(Begin(*rank, 2, &stream_));
  EXPECT_EQ(log_->end(), 4U);
  SY_ASSERT_OK_AND_ASSIGN(const std::uint64_t second, End(*rank, &stream_));
  EXPECT_EQ(second, 3U);
  EXPECT_THAT(End(*rank, &stream_), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  SY_EXPECT_OK(groups_[0]->Failed(Duration::zero()));
}

TEST_F(LogFollowerTest, LaunchesThatDifferEndTheGroup) {
  const auto rank = RankOf(0);
  Append(LaunchOf(0, 2));
  EXPECT_THAT(Begin(*rank, 3, &stream_),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  EXPECT_THAT(std::string(groups_[0]->Failed(kLong).message()),
              HasSubstr("launches a graph of 2 steps, and this one a graph of 3"));
  EXPECT_THAT(Begin(*rank, 3, &stream_),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  Append(StepOf(1, 5));
  EXPECT_TRUE(Makes({{'b', 5, 0}}));
}

TEST_F(LogFollowerTest, ALaunchThatIsNotEndedEndsItsGroupAndTheOthersGoOn) {
  const auto rank = RankOf(0);
  stream_.Finish();
  SY_ASSERT_OK(Begin(*rank, 3, &stream_));
  Append(StepOf(1, 5));
  EXPECT_THAT(groups_[0]->Failed(kLong),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_TRUE(Makes({{'b', 5, 0}}));
  EXPECT_THAT(End(*rank, &stream_), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST_F(LogFollowerTest, ALaunchOfOthersThatIsNotJoinedEndsTheGroup) {
  const auto rank = RankOf(0);
  Append(LaunchOf(0, 2));
  Append(StepOf(1, 5));
  Pass(2 * kIdleAfter);
  EXPECT_THAT(Submit(*rank, StepOf(0, 3), 1),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  const absl::Status why = groups_[0]->Failed(kLong);
  EXPECT_THAT(why, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(std::string(why.message()), HasSubstr("the engine of this worker has not"));
  EXPECT_TRUE(Makes({{'b', 5, 0}}));

  // No source is here that could launch.
  Append(LaunchOf(1, 2));
  EXPECT_THAT(groups_[1]->Failed(kLong),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST_F(LogFollowerTest, AfterItsEndOrItsGroupsASourceHearsOfIt) {
  const auto rank = RankOf(0);
  const auto other = RankOf(1);
  follower_->Remove(groups_[0].get());
  EXPECT_THAT(Submit(*rank, StepOf(0, 3), 1),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  follower_->Stop();
  EXPECT_THAT(Submit(*other, StepOf(1, 3), 1),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  other->Retire();
  EXPECT_THAT(Submit(*other, StepOf(1, 3), 1),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

}  // namespace
}  // namespace switchyard
