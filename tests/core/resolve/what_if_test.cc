#include "core/resolve/what_if.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/resolve/dispatch_resolver.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> Names(absl::string_view word) {
  std::vector<std::string> names;
  const auto profiles = ProfilesNamed(word);
  SY_EXPECT_OK(profiles.status());
  if (!profiles.ok()) return names;
  for (const DeviceProfile* profile : *profiles) names.emplace_back(profile->name);
  return names;
}

TEST(WhatIfTest, AWordIsAProfileOrAKind) {
  EXPECT_THAT(Names(""),
              ElementsAre("cpu", "cuda_sm90", "cuda_sm100", "ascend_a2", "ascend_a3", "ascend_a5"));
  EXPECT_THAT(Names("cpu"), ElementsAre("cpu"));
  EXPECT_THAT(Names("gpu"), ElementsAre("cuda_sm90", "cuda_sm100"));
  EXPECT_EQ(Names("cuda"), Names("gpu"));
  EXPECT_THAT(Names("npu"), ElementsAre("ascend_a2", "ascend_a3", "ascend_a5"));
  EXPECT_EQ(Names("ascend"), Names("npu"));
  EXPECT_THAT(Names("deepep_v1"), ElementsAre("deepep_v1"));
}

TEST(WhatIfTest, EveryKindIsAWord) {
  for (std::size_t i = 0; i < kDeviceKinds; ++i) {
    EXPECT_THAT(Names(DeviceKindName(static_cast<DeviceKind>(i))), Not(IsEmpty()));
  }
}

TEST(WhatIfTest, AnUnknownWordGetsTheNearest) {
  const absl::Status near = ProfilesNamed("cuda_sm9").status();
  EXPECT_THAT(near, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(std::string(near.message()), HasSubstr("did you mean \"cuda_sm90\"?"));
  EXPECT_THAT(std::string(ProfilesNamed("typewriter").status().message()),
              HasSubstr("one of cpu, cuda, gpu, ascend, npu, deepep_v1, cuda_sm90"));
}

TEST(WhatIfTest, EveryProfileProvesWhatIsNativeToItAndNoMore) {
  for (const DeviceProfile& profile : DeviceProfiles()) {
    const CapabilitySet all = FullCapabilities(profile);
    EXPECT_EQ(all.device, profile.kind) << profile.name;
    EXPECT_EQ(all.device_profile, profile.name);
    EXPECT_EQ(all.max_top_k, profile.max_top_k) << profile.name;
    for (const DispatchDtype dtype :
         {DispatchDtype::kBf16, DispatchDtype::kFp8, DispatchDtype::kInt8, DispatchDtype::kNvfp4}) {
      EXPECT_EQ(all.Takes(dtype), profile.Wire(dtype).support == WireSupport::kNative)
          << profile.name << " " << std::string(DispatchDtypeName(dtype));
    }
    for (const QuantSchemeInfo& scheme : AllQuantSchemes()) {
      EXPECT_TRUE(all.Takes(scheme.scheme)) << profile.name << " " << scheme.name;
    }
  }
}

// What is shown with it is what the resolver says: FP8 blocks are INT8 rows to no Ascend A2, FP8
// rows to a GPU.
TEST(WhatIfTest, TheResolverTakesSuchWorkers) {
  const auto decided = [](const char* profile) {
    const std::vector<CapabilitySet> workers{FullCapabilities(*FindDeviceProfile(profile))};
    DispatchRequest request;
    request.layer.scheme = QuantScheme::kFp8Block;
    request.source = FullCapabilities(*FindDeviceProfile("cpu"));
    request.workers = workers;
    request.shape = {.hidden = 256, .intermediate = 128, .experts = 8, .top_k = 2};
    const auto trace = ResolveDispatch(request);
    SY_EXPECT_OK(trace.status());
    return trace.ok() ? trace->outcome->dtype() : DispatchDtype::kInt8;
  };

  EXPECT_EQ(decided("cuda_sm90"), DispatchDtype::kFp8);
  EXPECT_EQ(decided("cpu"), DispatchDtype::kFp8);
  EXPECT_EQ(decided("ascend_a2"), DispatchDtype::kBf16);
}

}  // namespace
}  // namespace switchyard
