#include "worker/device/cuda/backend/cuda_options.h"

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(CudaOptionsTest, ReadsIndexTimeAndSize) {
  SY_ASSERT_OK_AND_ASSIGN(const CudaOptions first, ReadCudaOptions({}));
  EXPECT_EQ(first.index, 0);
  SY_ASSERT_OK_AND_ASSIGN(const CudaOptions third,
                          ReadCudaOptions({{"index", "2"},
                                           {"busy_poll_us", "500"},
                                           {"portable", "1"},
                                           {"shared_mib_max", "3"},
                                           {"source_kib_min", "2147483647"}}));
  EXPECT_EQ(third.index, 2);
  EXPECT_EQ(third.busy_poll, std::chrono::microseconds(500));
  EXPECT_FALSE(first.portable);
  EXPECT_TRUE(third.portable);
  EXPECT_EQ(first.shared_bytes_max, std::int64_t{1} << 30);
  EXPECT_EQ(third.shared_bytes_max, 3 << 20);
  EXPECT_EQ(first.source_bytes_min, std::size_t{512} << 10);
  EXPECT_EQ(third.source_bytes_min, std::size_t{2147483647} << 10);
}

TEST(CudaOptionsTest, RefusesOtherKeysAndWhatIsNoIndex) {
  for (const auto& keys :
       {DeviceKeys{{"beads", "7"}}, DeviceKeys{{"index", "-1"}}, DeviceKeys{{"index", "first"}},
        DeviceKeys{{"busy_poll_us", "1000001"}}, DeviceKeys{{"busy_poll_us", "long"}},
        DeviceKeys{{"source_kib_min", "2147483648"}}, DeviceKeys{{"source_kib_min", "-1"}},
        DeviceKeys{{"shared_mib_max", "-1"}}, DeviceKeys{{"portable", "2"}}}) {
    EXPECT_THAT(ReadCudaOptions(keys).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  }
}

}  // namespace
}  // namespace switchyard
