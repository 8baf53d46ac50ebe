#include "core/capability.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;

CapabilitySet CpuWorker() {
  return {.device = DeviceKind::kCpu,
          .device_profile = "cpu",
          .kernel_family = "amx_bf16",
          .wire_dtypes = {DispatchDtype::kBf16, DispatchDtype::kInt8},
          .schemes = {QuantScheme::kNone},
          .transports = {"shm", "tcp"},
          .max_top_k = 32,
          .weight_bytes_max = 1 << 30,
          .gdn = {}};
}

TEST(CapabilityTest, TakesOnlyWhatWasProved) {
  const CapabilitySet capabilities = CpuWorker();

  EXPECT_TRUE(capabilities.Takes(DispatchDtype::kBf16));
  EXPECT_TRUE(capabilities.Takes(DispatchDtype::kInt8));
  EXPECT_FALSE(capabilities.Takes(DispatchDtype::kFp8));
  EXPECT_TRUE(capabilities.Takes(QuantScheme::kNone));
  EXPECT_FALSE(CapabilitySet{}.Takes(DispatchDtype::kBf16));
  EXPECT_FALSE(CapabilitySet{}.Takes(QuantScheme::kNone));
}

TEST(CapabilityTest, PrintsEveryListByName) {
  const std::string text = CpuWorker().DebugString();

  EXPECT_THAT(text, HasSubstr("cpu/amx_bf16"));
  EXPECT_THAT(text, HasSubstr("wire=[bf16,int8]"));
  EXPECT_THAT(text, HasSubstr("schemes=[none]"));
  EXPECT_THAT(text, HasSubstr("transports=[shm,tcp]"));
  EXPECT_THAT(text, HasSubstr("max_top_k=32"));
}

TEST(CapabilityTest, DiffersInEveryField) {
  const CapabilitySet base = CpuWorker();
  CapabilitySet other = base;
  EXPECT_EQ(base, other);

  other.kernel_family = "avx512";
  EXPECT_NE(base, other);
  other = base;
  other.transports.pop_back();
  EXPECT_NE(base, other);
  other = base;
  other.weight_bytes_max = 1;
  EXPECT_NE(base, other);
  other = base;
  other.gdn.grid_2d = false;
  EXPECT_NE(base, other);
}

}  // namespace
}  // namespace switchyard
