#include "core/device_profile.h"

#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using testing::FailsWith;
using ::testing::HasSubstr;

ProfileDemand Demand(std::int32_t experts, std::int32_t top_k, std::int32_t ranks,
                     std::int32_t max_tokens_per_step) {
  return {.shape = {.hidden = 2048, .intermediate = 768, .experts = experts, .top_k = top_k},
          .ranks = ranks,
          .max_tokens_per_step = max_tokens_per_step};
}

TEST(DeviceProfileTest, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (const DeviceProfile& profile : DeviceProfiles()) {
    EXPECT_TRUE(names.insert(profile.name).second) << profile.name;
    ASSERT_NE(FindDeviceProfile(profile.name), nullptr);
    EXPECT_EQ(FindDeviceProfile(profile.name)->max_top_k, profile.max_top_k);
  }
  EXPECT_EQ(FindDeviceProfile("no_such_profile"), nullptr);
}

TEST(DeviceProfileTest, KindNamesRoundTrip) {
  for (const auto kind : {DeviceKind::kCpu, DeviceKind::kCuda, DeviceKind::kAscend}) {
    DeviceKind back{};
    ASSERT_TRUE(DeviceKindFromName(DeviceKindName(kind), &back));
    EXPECT_EQ(back, kind);
  }
  DeviceKind untouched = DeviceKind::kAscend;
  EXPECT_FALSE(DeviceKindFromName("tpu", &untouched));
  EXPECT_EQ(untouched, DeviceKind::kAscend);
}

// R45
TEST(DeviceProfileTest, DeepepRefusesMoreThan1024TokensPerStep) {
  const DeviceProfile& deepep = *FindDeviceProfile("deepep_v1");
  const DeviceProfile& cpu = *FindDeviceProfile("cpu");

  SY_EXPECT_OK(CheckLimits(deepep, Demand(64, 8, 4, 1024)));
  const absl::Status refused = CheckLimits(deepep, Demand(64, 8, 4, 1025));
  SY_EXPECT_OK(CheckLimits(cpu, Demand(64, 8, 4, 1025)));

  EXPECT_THAT(refused, FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("max_tokens_per_step 1025"));
  EXPECT_EQ(MetadataOf(refused).at("have"), "1024");
}

// R45
TEST(DeviceProfileTest, DeepepRefusesExpertsThatDoNotDivideByRanks) {
  const DeviceProfile& deepep = *FindDeviceProfile("deepep_v1");
  const DeviceProfile& cpu = *FindDeviceProfile("cpu");

  SY_EXPECT_OK(CheckLimits(deepep, Demand(16, 4, 4, 128)));
  const absl::Status refused = CheckLimits(deepep, Demand(16, 4, 3, 128));
  SY_EXPECT_OK(CheckLimits(cpu, Demand(16, 4, 3, 128)));

  EXPECT_THAT(refused, FailsWith(StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("16 experts do not divide by 3 ranks"));
  EXPECT_EQ(MetadataOf(refused).at("profile"), "deepep_v1");
}

// R62
TEST(DeviceProfileTest, TopKLimitIsElevenOnDeepepAndThirtyTwoOnCpu) {
  const DeviceProfile& deepep = *FindDeviceProfile("deepep_v1");
  const DeviceProfile& cpu = *FindDeviceProfile("cpu");

  for (const std::int32_t top_k : {9, 10, 11}) {
    SY_EXPECT_OK(CheckLimits(deepep, Demand(64, top_k, 4, 128))) << top_k;
  }
  for (const std::int32_t top_k : {12, 16, 32}) {
    const absl::Status refused = CheckLimits(deepep, Demand(64, top_k, 4, 128));
    EXPECT_THAT(refused, FailsWith(StatusCode::kInvalidArgument, Reason::kBadTopK)) << top_k;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("limit 11 of device profile deepep_v1"));
    SY_EXPECT_OK(CheckLimits(cpu, Demand(64, top_k, 4, 128))) << top_k;
  }
  EXPECT_THAT(CheckLimits(cpu, Demand(64, 33, 4, 128)),
              FailsWith(StatusCode::kInvalidArgument, Reason::kBadTopK));
}

}  // namespace
}  // namespace switchyard
