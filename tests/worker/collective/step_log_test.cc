#include "worker/collective/step_log.h"

#include <atomic>
#include <cstdlib>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

using Appended = StepLog::Appended;

// Memory as processes share it: zeroed, in whole lines.
class Shared {
 public:
  Shared()
      : memory_(static_cast<std::byte*>(std::aligned_alloc(64, StepLog::Bytes())), &std::free) {
    std::fill_n(memory_.get(), StepLog::Bytes(), std::byte{0});
  }
  [[nodiscard]] std::span<std::byte> span() const { return {memory_.get(), StepLog::Bytes()}; }

 private:
  const std::unique_ptr<std::byte, decltype(&std::free)> memory_;
};

LoggedStep StepOf(std::uint64_t number) {
  return {.group = static_cast<std::uint32_t>(number % LoggedStep::kGroupsMax),
          .layer = LayerId{static_cast<std::int32_t>(number % LoggedStep::kLayersMax)},
          .cover = static_cast<std::int32_t>(number % LoggedStep::kCoverMax) + 1,
          .epoch = number & LoggedStep::kEpochMask};
}

TEST(StepLogTest, GivesBackWhatWasAppended) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  const LoggedStep last{.group = LoggedStep::kGroupsMax - 1,
                        .layer = LayerId{LoggedStep::kLayersMax - 1},
                        .cover = LoggedStep::kCoverMax,
                        .epoch = LoggedStep::kEpochMask};

  EXPECT_EQ(log.At(0), std::nullopt);
  EXPECT_EQ(log.Append(0, StepOf(0)), Appended::kYes);
  EXPECT_EQ(log.Append(1, last), Appended::kYes);

  const StepLog view = StepLog::View(shared.span());
  EXPECT_EQ(view.At(0), StepOf(0));
  EXPECT_EQ(view.At(1), last);
  EXPECT_EQ(view.At(2), std::nullopt);
  EXPECT_EQ(view.end(), 2U);
  EXPECT_EQ(view.layout(), StepLog::kLayout);
}

TEST(StepLogTest, ANumberIsGivenOnce) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  ASSERT_EQ(log.Append(0, StepOf(0)), Appended::kYes);

  EXPECT_EQ(log.Append(0, StepOf(7)), Appended::kTaken);
  EXPECT_EQ(log.At(0), StepOf(0));
}

// Three laps, so that a step of an earlier one is not taken for a later one's.
TEST(StepLogTest, StepsOfEarlierLapsAreGone) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  for (std::uint64_t n = 0; n < 3 * StepLog::kSteps; ++n) {
    ASSERT_EQ(log.At(n), std::nullopt) << n;
    ASSERT_EQ(log.Append(n, StepOf(n)), Appended::kYes) << n;
    ASSERT_EQ(log.At(n), StepOf(n)) << n;
    if (n < StepLog::kSteps) continue;
    ASSERT_EQ(log.At(n - StepLog::kSteps), std::nullopt) << n;
  }
  EXPECT_EQ(log.Append(5, StepOf(5)), Appended::kTaken) << "long past";
}

TEST(StepLogTest, NothingIsReplacedBeforeAllHaveMadeIt) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  const StepLog::Place slow = log.Enter(0);
  const StepLog::Place quick = log.Enter(0);
  for (std::uint64_t n = 0; n < StepLog::kSteps; ++n) {
    ASSERT_EQ(log.Append(n, StepOf(n)), Appended::kYes);
  }
  log.Done(quick, StepLog::kSteps);

  EXPECT_EQ(log.Append(StepLog::kSteps, StepOf(1)), Appended::kFull);
  log.Done(slow, 1);
  EXPECT_EQ(log.Append(StepLog::kSteps, StepOf(1)), Appended::kYes);
  EXPECT_EQ(log.Append(StepLog::kSteps + 1, StepOf(1)), Appended::kFull);
  log.Leave(slow);
  EXPECT_EQ(log.Append(StepLog::kSteps + 1, StepOf(1)), Appended::kYes);
}

TEST(StepLogTest, PlacesAreBoundedAndComeBack) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  std::vector<StepLog::Place> places;
  std::set<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < StepLog::kPlacesMax; ++i) {
    places.push_back(log.Enter(0));
    numbers.insert(places.back().number);
  }

  EXPECT_EQ(numbers.size(), StepLog::kPlacesMax);
  EXPECT_EQ(log.Enter(0).number, StepLog::kNoPlace);
  log.Leave(places[9]);
  EXPECT_EQ(log.Enter(3).number, places[9].number);
}

TEST(StepLogTest, NumbersOfGroupsAreTheirTakersUntilItsPlaceIsGone) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  const StepLog::Place one = log.Enter(0);
  const StepLog::Place two = log.Enter(0);
  std::set<std::uint32_t> of_one;
  std::set<std::uint32_t> of_two;
  for (std::uint32_t i = 0; i < LoggedStep::kGroupsMax / 2; ++i) {
    of_one.insert(log.TakeGroup(one));
    of_two.insert(log.TakeGroup(two));
  }
  of_one.insert(of_two.begin(), of_two.end());
  EXPECT_EQ(of_one.size(), LoggedStep::kGroupsMax) << "each of them once";
  EXPECT_EQ(*of_one.rbegin(), LoggedStep::kGroupsMax - 1);
  EXPECT_EQ(log.TakeGroup(one), StepLog::kNoGroup);

  const std::uint32_t given = *of_two.begin();
  log.GiveGroup(one, given);
  EXPECT_EQ(log.TakeGroup(one), StepLog::kNoGroup) << "it was not the giver's";
  log.GiveGroup(two, given);
  EXPECT_EQ(log.TakeGroup(one), given);
  log.GiveGroup(one, StepLog::kNoGroup);  // nothing happens

  log.Leave(two);
  EXPECT_EQ(log.TakeGroup(two), StepLog::kNoGroup);
  for (std::uint32_t i = 1; i < of_two.size(); ++i) {
    EXPECT_TRUE(of_two.contains(log.TakeGroup(one))) << i;
  }
  EXPECT_EQ(log.TakeGroup(one), StepLog::kNoGroup);
}

// Steps of a group that has ended may still be read.
TEST(StepLogTest, ANumberThatWasGivenBackComesLate) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  const StepLog::Place place = log.Enter(0);
  std::set<std::uint32_t> numbers;
  for (std::uint32_t i = 0; i < LoggedStep::kGroupsMax; ++i) {
    const std::uint32_t number = log.TakeGroup(place);
    numbers.insert(number);
    log.GiveGroup(place, number);
  }
  EXPECT_EQ(numbers.size(), LoggedStep::kGroupsMax);
}

TEST(StepLogTest, NumbersOfAKilledParticipantComeBack) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  const StepLog::Place killed = log.Enter(0);
  while (log.TakeGroup(killed) != StepLog::kNoGroup) {
  }
  const StepLog::Place lively = log.Enter(0);
  EXPECT_EQ(log.TakeGroup(lively), StepLog::kNoGroup);
  const auto begun = std::chrono::steady_clock::now();
  while (log.TakeGroup(lively) == StepLog::kNoGroup) {
    ASSERT_TRUE(log.Keep(lively, 0));
    ASSERT_LT(std::chrono::steady_clock::now() - begun, 10 * StepLog::kSilentMax);
    std::this_thread::yield();
  }
  EXPECT_GT(std::chrono::steady_clock::now() - begun, StepLog::kSilentMax * 9 / 10);
}

// A process that was killed, or stopped for a while.
TEST(StepLogTest, ASilentParticipantHoldsNobodyUp) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  const StepLog::Place silent = log.Enter(0);
  const StepLog::Place lively = log.Enter(0);
  for (std::uint64_t n = 0; n < StepLog::kSteps; ++n) {
    ASSERT_EQ(log.Append(n, StepOf(n)), Appended::kYes);
  }
  ASSERT_TRUE(log.Keep(lively, StepLog::kSteps));
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_EQ(log.Append(StepLog::kSteps, StepOf(1)), Appended::kFull);

  while (log.Append(StepLog::kSteps, StepOf(1)) == Appended::kFull) {
    ASSERT_TRUE(log.Keep(lively, StepLog::kSteps));
    ASSERT_LT(std::chrono::steady_clock::now() - begun, 10 * StepLog::kSilentMax);
    std::this_thread::yield();
  }
  EXPECT_GT(std::chrono::steady_clock::now() - begun, StepLog::kSilentMax * 9 / 10);

  EXPECT_FALSE(log.Keep(silent, 1)) << "it hears of it when it goes on";
  const StepLog::Place next = log.Enter(StepLog::kSteps + 1);
  ASSERT_EQ(next.number, silent.number);
  log.Done(silent, 7);  // too late for each of these
  log.Leave(silent);
  EXPECT_TRUE(log.Keep(next, StepLog::kSteps + 1));
  EXPECT_EQ(log.Append(StepLog::kSteps + 1, StepOf(1)), Appended::kYes);
  // One that lives is waited for, however slow it is.
  EXPECT_EQ(log.Append(StepLog::kSteps * 2 + 1, StepOf(1)), Appended::kFull);
}

TEST(StepLogTest, PlacesOfSilentParticipantsAreGivenAgain) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  for (std::uint32_t i = 0; i < StepLog::kPlacesMax; ++i) (void)log.Enter(0);
  EXPECT_EQ(log.Enter(0).number, StepLog::kNoPlace);

  const auto until = std::chrono::steady_clock::now() + 10 * StepLog::kSilentMax;
  while (log.Enter(0).number == StepLog::kNoPlace) {
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    std::this_thread::yield();
  }
}

TEST(StepLogTest, AWaitEndsWithTheStepAndInTime) {
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  EXPECT_FALSE(log.WaitFor(0, std::chrono::microseconds(10), std::chrono::milliseconds(5)));

  // Now and then the waiter is about to sleep, or asleep, when the step comes.
  constexpr std::uint64_t kRounds = 2000;
  std::thread other([&] {
    for (std::uint64_t n = 0; n < kRounds; ++n) {
      ASSERT_EQ(log.Append(2 * n, StepOf(n)), Appended::kYes);
      ASSERT_TRUE(log.WaitFor(2 * n + 1, Duration::zero(), std::chrono::seconds(20)));
    }
  });
  for (std::uint64_t n = 0; n < kRounds; ++n) {
    ASSERT_TRUE(log.WaitFor(2 * n, Duration::zero(), std::chrono::seconds(20)));
    ASSERT_EQ(log.Append(2 * n + 1, StepOf(n)), Appended::kYes);
  }
  other.join();
}

// Appenders and readers at once: every number has one step, and all readers see the same steps.
TEST(StepLogTest, AllSeeOneOrder) {
  constexpr std::uint64_t kOfEach = 6000;
  constexpr std::uint32_t kAppenders = 3;
  constexpr std::uint64_t kAll = kOfEach * kAppenders;
  const Shared shared;
  StepLog log = StepLog::Make(shared.span());
  std::vector<std::vector<LoggedStep>> seen(2);
  std::vector<StepLog::Place> places = {log.Enter(0), log.Enter(0)};
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < seen.size(); ++r) {
    threads.emplace_back([&, r] {
      StepLog own = StepLog::View(shared.span());
      for (std::uint64_t n = 0; n < kAll; ++n) {
        while (!own.WaitFor(n, std::chrono::microseconds(5), std::chrono::milliseconds(5))) {
        }
        seen[r].push_back(*own.At(n));
        own.Done(places[r], n + 1);
      }
    });
  }
  for (std::uint32_t a = 0; a < kAppenders; ++a) {
    threads.emplace_back([&, a] {
      StepLog own = StepLog::View(shared.span());
      std::uint64_t number = 0;
      for (std::uint64_t i = 0; i < kOfEach; ++i) {
        const LoggedStep step{.group = a, .layer = LayerId{1}, .cover = 1, .epoch = i};
        for (;;) {
          const Appended appended = own.Append(number, step);
          if (appended != Appended::kFull) ++number;
          if (appended == Appended::kYes) break;
          if (appended == Appended::kFull) std::this_thread::yield();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  EXPECT_EQ(seen[0], seen[1]);
  std::vector<std::uint64_t> next(kAppenders, 0);
  for (const LoggedStep& step : seen[0]) {
    ASSERT_LT(step.group, kAppenders);
    EXPECT_EQ(step.epoch, next[step.group]++) << "of appender " << step.group;
  }
}

}  // namespace
}  // namespace switchyard
