#include "core/base/clock.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono_literals::operator""ms;

TEST(ClockTest, SteadyClockNeverGoesBack) {
  const SteadyClock clock;
  TimePoint last = clock.Now();

  for (int i = 0; i < 1000; ++i) {
    const TimePoint now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(ClockTest, ManualClockMovesOnlyWhenAdvanced) {
  ManualClock clock;
  const TimePoint start = clock.Now();

  EXPECT_EQ(clock.Now(), start);
  clock.Advance(250ms);
  clock.Advance(Duration(1));

  EXPECT_EQ(clock.Now() - start, Duration(250'000'001));
}

}  // namespace
}  // namespace switchyard
