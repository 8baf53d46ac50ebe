#include "worker/device/cuda/backend/cuda_options.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(CudaOptionsTest, ReadsIndexAndTime) {
  SY_ASSERT_OK_AND_ASSIGN(const CudaOptions first, ReadCudaOptions({}));
  EXPECT_EQ(first.index, 0);
  SY_ASSERT_OK_AND_ASSIGN(const CudaOptions third,
                          ReadCudaOptions({{"index", "2"}, {"busy_poll_us", "500"}}));
  EXPECT_EQ(third.index, 2);
  EXPECT_EQ(third.busy_poll, std::chrono::microseconds(500));
}

TEST(CudaOptionsTest, RefusesOtherKeysAndWhatIsNoIndex) {
  for (const auto& keys :
       {DeviceKeys{{"beads", "7"}}, DeviceKeys{{"index", "-1"}}, DeviceKeys{{"index", "first"}},
        DeviceKeys{{"busy_poll_us", "1000001"}}, DeviceKeys{{"busy_poll_us", "long"}}}) {
    EXPECT_THAT(ReadCudaOptions(keys).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  }
}

}  // namespace
}  // namespace switchyard
