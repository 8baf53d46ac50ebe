#include "core/format/weight_scales.h"

#include "gtest/gtest.h"

namespace switchyard {
namespace {

TEST(WeightScalesTest, WhatIsEmptyIsOne) {
  EXPECT_EQ(WeightScales{}.view().At(1000, 1000, 1001), 1);
  EXPECT_EQ(WeightScales{.tensor = 3}.view().At(1000, 1000, 1001), 3);
}

// Blocks are rows of ceil(k / 128) scales.
TEST(WeightScalesTest, AWeightHasTheScalesOfTensorOutputAndBlock) {
  WeightScales scales{.tensor = 2, .blocks = {3, 5, 7, 11}};
  scales.channels.assign(130, 1);
  scales.channels[129] = 13;
  constexpr std::int64_t kCount = 129;

  const WeightScalesView view = scales.view();

  EXPECT_EQ(view.At(0, 0, kCount), 2 * 3);
  EXPECT_EQ(view.At(127, 127, kCount), 2 * 3);
  EXPECT_EQ(view.At(127, 128, kCount), 2 * 5);
  EXPECT_EQ(view.At(128, 127, kCount), 2 * 7);
  EXPECT_EQ(view.At(129, 128, kCount), 2 * 13 * 11);
  EXPECT_EQ(ScaleBlocks(128), 1);
  EXPECT_EQ(ScaleBlocks(129), 2);
}

}  // namespace
}  // namespace switchyard
