#include "core/device_profile.h"

#include <map>
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
  for (std::size_t i = 0; i < kDeviceKinds; ++i) {
    const auto kind = static_cast<DeviceKind>(i);
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

// Spec of the devices, one line a profile: what becomes of BF16, FP8, INT8 and NVFP4 rows.
// R14: FP8 on Ascend A2 and A3 goes as INT8. R15: NVFP4 on Ascend is refused. R16: INT8 on a GPU
// goes as FP8. R126: DeepEP V1 has no NVFP4.
TEST(DeviceProfileTest, SaysWhatBecomesOfEachWireDtype) {
  const std::map<std::string, std::string> table{
      {"cpu", "bf16 fp8 int8 nvfp4"},        {"deepep_v1", "bf16 fp8 int8>fp8 -"},
      {"cuda_sm90", "bf16 fp8 int8>fp8 -"},  {"cuda_sm100", "bf16 fp8 int8>fp8 nvfp4"},
      {"ascend_a2", "bf16 fp8>int8 int8 !"}, {"ascend_a3", "bf16 fp8>int8 int8 !"},
      {"ascend_a5", "bf16 fp8 int8 !"},
  };

  for (const DeviceProfile& profile : DeviceProfiles()) {
    std::string row;
    for (std::size_t i = 0; i < profile.wire.size(); ++i) {
      const auto dtype = static_cast<DispatchDtype>(i);
      const WireRow& wire = profile.Wire(dtype);
      const std::string name(DispatchDtypeName(dtype));
      const std::string instead(DispatchDtypeName(wire.instead));
      row += i == 0 ? "" : " ";
      row += wire.support == WireSupport::kNative    ? name
             : wire.support == WireSupport::kInstead ? name + ">" + instead
             : wire.support == WireSupport::kAbsent  ? "-"
                                                     : "!";
    }
    ASSERT_TRUE(table.contains(profile.name)) << profile.name;
    EXPECT_EQ(row, table.at(profile.name)) << profile.name;
    EXPECT_EQ(profile.Wire(DispatchDtype::kBf16).support, WireSupport::kNative);
  }
  EXPECT_EQ(DeviceProfiles().size(), table.size());
}

// A replacement must be native, or it would need a replacement itself.
TEST(DeviceProfileTest, SubstitutesAreNative) {
  for (const DeviceProfile& profile : DeviceProfiles()) {
    for (const WireRow& wire : profile.wire) {
      if (wire.support != WireSupport::kInstead) continue;
      EXPECT_EQ(profile.Wire(wire.instead).support, WireSupport::kNative) << profile.name;
    }
  }
}

TEST(DeviceProfileTest, ScalesAndRanksOfQuantizedRows) {
  for (const DeviceProfile& profile : DeviceProfiles()) {
    const std::string name = profile.name;
    EXPECT_EQ(profile.fp8_scales, name == "cuda_sm100" ? ScaleKind::kUe8m0 : ScaleKind::kF32);
    EXPECT_EQ(profile.quantized_normal_ranks_max, name == "ascend_a2" ? 8 : 0);
    EXPECT_NE(std::string(profile.title), "");
  }
}

}  // namespace
}  // namespace switchyard
