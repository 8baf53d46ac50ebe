#include "core/dispatch_mode.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(DispatchModeTest, ModeNamesRoundTrip) {
  for (const auto mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    DispatchMode back{};
    ASSERT_TRUE(DispatchModeFromName(DispatchModeName(mode), &back));
    EXPECT_EQ(back, mode);
  }
  DispatchMode untouched = DispatchMode::kLowLatency;
  EXPECT_FALSE(DispatchModeFromName("auto", &untouched));
  EXPECT_EQ(untouched, DispatchMode::kLowLatency);
}

}  // namespace
}  // namespace switchyard
