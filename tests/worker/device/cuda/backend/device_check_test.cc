#include "worker/device/cuda/backend/device_check.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "worker/device/cuda/backend/cuda_backend.h"

namespace switchyard {
namespace {

using ::testing::AnyOf;
using testing::FailsWith;
using ::testing::HasSubstr;

TEST(DeviceCheckTest, NamesTheVersionsOfBothSides) {
  EXPECT_EQ(CudaVersionsText(13000, 0), "this build has CUDA 13.0, and no driver is loaded");
  EXPECT_EQ(CudaVersionsText(13020, 12040),
            "this build has CUDA 13.2, and the driver is for CUDA 12.4");
}

TEST(DeviceCheckTest, SaysHowMuchMemoryIsNeededAndFree) {
  EXPECT_EQ(DeviceMemoryText({.needed_bytes = 7, .free_bytes = 5, .total_bytes = 90}),
            "7 bytes are needed, and 5 of 90 are free");
  EXPECT_EQ(DeviceMemoryText({.needed_bytes = 7}), "7 bytes are needed");
}

TEST(DeviceCheckTest, HopperAndWhatCameLaterHasKernels) {
  EXPECT_FALSE(HasKernelsFor(8));
  EXPECT_TRUE(HasKernelsFor(9));
  EXPECT_TRUE(HasKernelsFor(10));
  EXPECT_TRUE(HasKernelsFor(12));
}

// On a machine without a driver every index is refused for that reason, and on any other this one
// because no machine has so many GPUs. A device that cannot be had is an error: nothing else
// computes in its place.
TEST(DeviceCheckTest, ADeviceThatIsNotThereIsRefusedNamingWhatIsMissing) {
  const absl::Status refused = CudaBackend::Create({.index = 4000}).status();

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported));
  EXPECT_THAT(std::string(refused.message()),
              AnyOf(HasSubstr("so none of index 4000"), HasSubstr("(this build has CUDA 13.")));
  EXPECT_EQ(MetadataOf(refused).at("want"), "cuda:index=4000");
}

}  // namespace
}  // namespace switchyard
