#include "core/gdn_facts.h"

#include <map>
#include <string>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

// R124: FlashInfer verifies only on SM90; NPUs keep away from two-dimensional grids.
TEST(GdnFactsTest, EveryProfileHasItsFacts) {
  constexpr auto kTriton = GdnVerifyKernel::kTriton;
  const std::map<std::string, GdnFacts> wanted{
      {"cpu", {kTriton, true}},
      {"deepep_v1", {kTriton, true}},
      {"cuda_sm90", {GdnVerifyKernel::kFlashinfer, true}},
      {"cuda_sm100", {kTriton, true}},
      {"ascend_a2", {kTriton, false}},
      {"ascend_a3", {kTriton, false}},
      {"ascend_a5", {kTriton, false}},
  };

  EXPECT_EQ(DeviceProfiles().size(), wanted.size());
  for (const DeviceProfile& profile : DeviceProfiles()) {
    EXPECT_EQ(GdnFactsOf(profile), wanted.at(profile.name)) << profile.name;
  }
}

}  // namespace
}  // namespace switchyard
