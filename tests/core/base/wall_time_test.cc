#include "core/base/wall_time.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(WallTimeTest, TheSteadyClockHasItsWallTime) {
  const WallTime before = ReadWallTime();
  const Duration wall =
      SteadyClock().Now().time_since_epoch() + WallOfSteadyClock() + std::chrono::milliseconds(1);
  const WallTime after = ReadWallTime();
  // Milliseconds are cut off on both sides.
  EXPECT_GE(wall, Duration(before.time_since_epoch()));
  EXPECT_LE(wall, Duration(after.time_since_epoch() + std::chrono::milliseconds(3)));
}

}  // namespace
}  // namespace switchyard
