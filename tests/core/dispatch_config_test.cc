#include "core/dispatch_config.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(DispatchConfigTest, ModeNamesRoundTrip) {
  for (const auto mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    DispatchMode back{};
    ASSERT_TRUE(DispatchModeFromName(DispatchModeName(mode), &back));
    EXPECT_EQ(back, mode);
  }
  DispatchMode untouched = DispatchMode::kLowLatency;
  EXPECT_FALSE(DispatchModeFromName("auto", &untouched));
  EXPECT_EQ(untouched, DispatchMode::kLowLatency);
}

TEST(DispatchConfigTest, PhaseNamesRoundTrip) {
  for (const auto phase : {Phase::kPrefill, Phase::kDecode, Phase::kMixed}) {
    Phase back{};
    ASSERT_TRUE(PhaseFromName(PhaseName(phase), &back));
    EXPECT_EQ(back, phase);
  }
  Phase untouched = Phase::kDecode;
  EXPECT_FALSE(PhaseFromName("", &untouched));
  EXPECT_EQ(untouched, Phase::kDecode);
}

TEST(DispatchConfigTest, EdgesOrderBySourceThenWorker) {
  const Edge cpu_to_cpu{DeviceKind::kCpu, DeviceKind::kCpu};
  const Edge cpu_to_cuda{DeviceKind::kCpu, DeviceKind::kCuda};
  const Edge cuda_to_cpu{DeviceKind::kCuda, DeviceKind::kCpu};

  EXPECT_LT(cpu_to_cpu, cpu_to_cuda);
  EXPECT_LT(cpu_to_cuda, cuda_to_cpu);
}

}  // namespace
}  // namespace switchyard
