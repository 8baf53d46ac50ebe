#include "worker/registry/device_registry.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_options.h"
#include "worker/device/device_keys.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(DeviceRegistryTest, MakesTheDefaultDeviceAndOneWithKeys) {
  SY_ASSERT_OK_AND_ASSIGN(const auto best, MakeDevice(kDefaultDevice));
  EXPECT_EQ(best->capabilities().device, DeviceKind::kCpu);

  SY_ASSERT_OK_AND_ASSIGN(const auto scalar,
                          MakeDevice("cpu:kernel_family=scalar,compute_threads=2"));
  EXPECT_EQ(scalar->capabilities().kernel_family, "scalar");
}

TEST(DeviceRegistryTest, RefusesWhatItDoesNotKnowAndSaysWhatThereIs) {
  EXPECT_THAT(MakeDevice("abacus").status(),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  EXPECT_THAT(MakeDevice("cpu:kernel_family=abacus").status(),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  for (const char* const spec :
       {"cpu:beads=7", "cpu:compute_threads=many", "cpu:compute_threads=0", "cpu:scalar",
        "cpu:=scalar", "cpu:compute_threads=1,compute_threads=2"}) {
    EXPECT_THAT(MakeDevice(spec).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << spec;
  }
}

// No machine has so many GPUs. A build without CUDA refuses them all.
TEST(DeviceRegistryTest, SaysThatThereIsNoSuchGpu) {
  for (const char* const spec : {"cuda:index=4000", "cuda:4000"}) {
    EXPECT_THAT(MakeDevice(spec).status(),
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported))
        << spec;
  }
}

TEST(DeviceKeysTest, ReadsKeysAndValues) {
  SY_ASSERT_OK_AND_ASSIGN(const DeviceKeys keys, ReadDeviceKeys("a=1,b=x=y"));
  EXPECT_EQ(keys, (DeviceKeys{{"a", "1"}, {"b", "x=y"}}));
  SY_ASSERT_OK_AND_ASSIGN(const DeviceKeys none, ReadDeviceKeys(""));
  EXPECT_TRUE(none.empty());
}

}  // namespace
}  // namespace switchyard
