#include "model/quant/layout/projection_scales.h"

#include "gtest/gtest.h"

#include "tests/model/quant/layout/raw_tensors.h"

namespace switchyard {
namespace {

using testing::TensorOf;

RawProjection Projection(const ProjectionQuant& quant, const ProjectionSize& size,
                         const std::vector<float>& scales, const std::vector<float>& second = {}) {
  RawProjection raw{quant, size, {}};
  if (!scales.empty()) {
    raw.tensors.push_back(TensorOf(TensorRole::kScale, TensorDtype::kF32, scales));
  }
  if (!second.empty()) {
    raw.tensors.push_back(TensorOf(TensorRole::kScaleSecond, TensorDtype::kF32, second));
  }
  return raw;
}

TEST(ProjectionScalesTest, AreOneWithoutScales) {
  const ProjectionScales none(Projection({.layout = QuantLayout::kBf16}, {2, 2}, {}));
  EXPECT_EQ(none.At(1, 1), 1);
  EXPECT_FALSE(none.by_group());
}

TEST(ProjectionScalesTest, BelongToTheTensorARowOrABlock) {
  EXPECT_EQ(ProjectionScales(Projection({.layout = QuantLayout::kFp8Tensor}, {2, 2}, {5})).At(1, 1),
            5);
  EXPECT_EQ(
      ProjectionScales(Projection({.layout = QuantLayout::kFp8Channel}, {2, 2}, {5, 6})).At(1, 0),
      6);
  // 2 x 2 blocks; the last ones are smaller than 128 x 128.
  const ProjectionScales blocks(
      Projection({.layout = QuantLayout::kFp8Block}, {130, 200}, {1, 2, 3, 4}));
  EXPECT_EQ(blocks.At(127, 128), 2);
  EXPECT_EQ(blocks.At(128, 127), 3);
  EXPECT_EQ(blocks.At(129, 199), 4);
  EXPECT_FALSE(blocks.by_group());
}

TEST(ProjectionScalesTest, BelongToGroupsOfKInEitherOrder) {
  const ProjectionScales rows(
      Projection({.layout = QuantLayout::kPackQuantized, .group_size = 8}, {2, 16}, {1, 2, 3, 4}));
  const ProjectionScales columns(
      Projection({.layout = QuantLayout::kAwq, .group_size = 8}, {2, 16}, {1, 2, 3, 4}));
  EXPECT_EQ(rows.At(0, 8), 2);
  EXPECT_EQ(columns.At(0, 8), 3);
  EXPECT_EQ(rows.At(1, 7), 3);
  EXPECT_EQ(columns.At(1, 7), 2);
  EXPECT_TRUE(rows.by_group());
  EXPECT_EQ(rows.group_size(), 8);
}

TEST(ProjectionScalesTest, ProductsOfRowAndGroupAreRoundedToF16) {
  const ProjectionQuant quant{.layout = QuantLayout::kModelSlimW4A8, .group_size = 8};
  // 1 + 2^-12 is not an F16: it rounds to 1, and twice it to 2.
  const ProjectionScales both(Projection(quant, {2, 8}, {1, 2}, {1 + 0x1p-12F, 1 + 0x1p-12F}));
  EXPECT_EQ(both.At(0, 0), 1);
  EXPECT_EQ(both.At(1, 0), 2);
  EXPECT_TRUE(both.by_group());
  const ProjectionScales rows(
      Projection({.layout = QuantLayout::kModelSlimW4A8}, {2, 8}, {1 + 0x1p-12F, 2}));
  EXPECT_EQ(rows.At(0, 7), 1 + 0x1p-12F);
  EXPECT_FALSE(rows.by_group());
}

}  // namespace
}  // namespace switchyard
