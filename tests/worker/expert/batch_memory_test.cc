#include "worker/expert/batch_memory.h"

#include "gtest/gtest.h"

#include "tests/testing/fake_device.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FakeDevice;

constexpr MoeShape kShape{.hidden = 8, .intermediate = 8, .experts = 4, .top_k = 2};
constexpr BatchOptions kUsual{.rows_max = 16, .pairs_max = 32};
constexpr BatchSize kLarge{.rows = 64, .pairs = 512};

TEST(BatchMemoryTest, IsOfTheUsualSizeUnlessTheDeviceIsWorthMore) {
  FakeDevice device;

  const auto memory = BatchMemory::CreateForPrefill(&device, kShape, kUsual);

  SY_ASSERT_OK(memory);
  EXPECT_EQ(memory->rows_max, kUsual.rows_max);
  EXPECT_EQ(device.workspace_pairs_max, kUsual.pairs_max);
}

TEST(BatchMemoryTest, IsLargeForPrefillOnly) {
  FakeDevice device;
  device.prefill_batch = kLarge;

  const auto memory = EpochMemory::Create(&device, kShape, kUsual);

  SY_ASSERT_OK(memory);
  EXPECT_EQ((*memory)->by_class[0].rows_max, kUsual.rows_max);
  EXPECT_EQ((*memory)->by_class[1].rows_max, kLarge.rows);
  EXPECT_EQ(device.workspace_pairs_max, kLarge.pairs);
}

TEST(BatchMemoryTest, IsOfTheUsualSizeWhereTheDeviceLacksMemory) {
  FakeDevice device;
  device.prefill_batch = kLarge;
  device.workspace_pairs_limit = kUsual.pairs_max;

  const auto memory = BatchMemory::CreateForPrefill(&device, kShape, kUsual);

  SY_ASSERT_OK(memory);
  EXPECT_EQ(memory->rows_max, kUsual.rows_max);
  EXPECT_EQ(device.workspace_pairs_max, kUsual.pairs_max);
}

}  // namespace
}  // namespace switchyard
