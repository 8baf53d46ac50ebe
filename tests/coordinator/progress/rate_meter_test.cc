#include "coordinator/progress/rate_meter.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RateMeterTest : public ::testing::Test {
 protected:
  // Reports as heartbeats do, twice a second, for `time`.
  void Run(Duration time, std::int64_t bytes_per_second) {
    for (const TimePoint end = now_ + time; now_ < end;) {
      now_ += milliseconds(500);
      count_ += bytes_per_second / 2;
      meter_.Add(count_, now_);
    }
  }

  RateMeter meter_;
  TimePoint now_{seconds(100)};
  std::int64_t count_ = 0;
};

TEST_F(RateMeterTest, KnowsNothingBeforeTheSecondReport) {
  EXPECT_EQ(meter_.PerSecond(now_), 0);
  EXPECT_EQ(meter_.Left(100, now_), std::nullopt);
  EXPECT_EQ(meter_.Still(now_), Duration::zero());

  meter_.Add(50, now_);

  EXPECT_EQ(meter_.count(), 50);
  EXPECT_EQ(meter_.PerSecond(now_), 0);
  EXPECT_EQ(meter_.Left(100, now_ + seconds(1)), std::nullopt);
}

TEST_F(RateMeterTest, TheRateIsThatOfTheClockAndTheRestFollows) {
  meter_.Add(0, now_);
  Run(seconds(10), 1000);

  EXPECT_EQ(meter_.PerSecond(now_), 1000);
  EXPECT_EQ(meter_.Left(13000, now_), seconds(3));
  EXPECT_EQ(meter_.Left(10000, now_), Duration::zero());
  EXPECT_EQ(meter_.Left(9000, now_), Duration::zero()) << "the total was wrong";
  EXPECT_EQ(meter_.Still(now_), Duration::zero());
}

TEST_F(RateMeterTest, OnlyTheLastSecondsCount) {
  meter_.Add(0, now_);
  Run(seconds(100), 1000);
  Run(seconds(16), 4000);

  EXPECT_EQ(meter_.PerSecond(now_), 4000);
}

TEST_F(RateMeterTest, PromisesNoTimeOnceNothingMoves) {
  meter_.Add(0, now_);
  Run(seconds(10), 1000);
  Run(seconds(16), 0);

  EXPECT_EQ(meter_.PerSecond(now_), 0);
  EXPECT_EQ(meter_.Left(13000, now_), std::nullopt);
  EXPECT_EQ(meter_.Still(now_), seconds(16));
}

TEST_F(RateMeterTest, ReportsThatDoNotComeAreTimeInWhichNothingMoved) {
  meter_.Add(0, now_);
  Run(seconds(10), 1000);

  EXPECT_EQ(meter_.PerSecond(now_ + milliseconds(900)), 1000);
  EXPECT_EQ(meter_.PerSecond(now_ + seconds(10)), 500);
  EXPECT_EQ(meter_.PerSecond(now_ + seconds(15)), 0);
  EXPECT_EQ(meter_.Left(13000, now_ + seconds(15)), std::nullopt);
  EXPECT_EQ(meter_.Still(now_ + seconds(15)), seconds(15));
}

TEST_F(RateMeterTest, ACountThatFallsStartsAnew) {
  meter_.Add(0, now_);
  Run(seconds(10), 1000);

  meter_.Add(10, now_);

  EXPECT_EQ(meter_.count(), 10);
  EXPECT_EQ(meter_.PerSecond(now_ + seconds(1)), 0);
}

TEST_F(RateMeterTest, NoTimeOfMonthsAndNoOverflow) {
  meter_.Add(0, now_);
  meter_.Add(1, now_ + seconds(1));

  EXPECT_EQ(meter_.PerSecond(now_ + seconds(1)), 1);
  EXPECT_EQ(meter_.Left(std::int64_t{1} << 62, now_ + seconds(1)), std::nullopt);
}

TEST_F(RateMeterTest, AFloodOfReportsChangesNothing) {
  meter_.Add(0, now_);
  for (int i = 0; i < 100'000; ++i) {
    now_ += milliseconds(1);
    meter_.Add(++count_, now_);
  }

  EXPECT_EQ(meter_.PerSecond(now_), 1000);
}

}  // namespace
}  // namespace switchyard
