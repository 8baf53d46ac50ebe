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

TEST(DispatchModeTest, PhaseNamesRoundTrip) {
  for (const auto phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
    Phase back{};
    ASSERT_TRUE(PhaseFromName(PhaseName(phase), &back));
    EXPECT_EQ(back, phase);
  }
  Phase untouched = Phase::kDecode;
  EXPECT_FALSE(PhaseFromName("", &untouched));
  EXPECT_EQ(untouched, Phase::kDecode);
}

}  // namespace
}  // namespace switchyard
