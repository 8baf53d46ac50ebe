#include "ctl/output/times.h"

#include <chrono>
#include <cmath>

#include "gtest/gtest.h"

namespace switchyard::ctl {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;

TEST(TimesTextTest, UnitsFollowTheSize) {
  EXPECT_EQ(SecondsText(85e-6), "85us");
  EXPECT_EQ(SecondsText(1.24e-3), "1.2ms");
  EXPECT_EQ(SecondsText(3), "3.0s");
}

TEST(TimesTextTest, QuantilesOfTimesAreSeconds) {
  HistogramCounts times;
  EXPECT_EQ(QuantileText(times, 0.5), "") << "nothing was counted";
  for (int i = 0; i < 100; ++i) times.Observe(microseconds(15));

  EXPECT_NEAR(QuantileOf(times, 0.5), 15e-6, 1e-9);
  EXPECT_EQ(QuantileText(times, 0.5), "15us");

  for (int i = 0; i < 100; ++i) times.Observe(seconds(60));

  EXPECT_TRUE(std::isinf(QuantileOf(times, 0.99)));
  EXPECT_EQ(QuantileText(times, 0.99), ">10.0s");
}

TEST(TimesTextTest, QuantilesOfCountsHaveNoUnit) {
  const double bounds[] = {1, 2, 5};
  const std::uint64_t buckets[] = {0, 10, 0, 0};

  EXPECT_EQ(QuantileText(bounds, buckets, false, 0.5), "1.5");
}

}  // namespace
}  // namespace switchyard::ctl
