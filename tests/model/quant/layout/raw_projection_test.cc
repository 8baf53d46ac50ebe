#include "model/quant/layout/raw_projection.h"

#include "gtest/gtest.h"

#include "tests/model/quant/layout/raw_tensors.h"

namespace switchyard {
namespace {

using testing::TensorOf;

constexpr TensorRole kScale = TensorRole::kScale;

TEST(RawProjectionTest, FindsTensorsByTheirRole) {
  const RawProjection raw{{},
                          {1, 1},
                          {TensorOf<float>(TensorRole::kWeight, TensorDtype::kF32, {1}),
                           TensorOf<float>(kScale, TensorDtype::kF32, {2})}};

  EXPECT_EQ(raw.Find(kScale), &raw.tensors[1]);
  EXPECT_EQ(raw.Find(TensorRole::kBias), nullptr);
}

TEST(RawProjectionTest, ReadsFloatsOfEveryDtype) {
  using Floats = std::vector<float>;
  EXPECT_EQ(FloatsOf(TensorOf<float>(kScale, TensorDtype::kF32, {0.5F, -3})), (Floats{0.5F, -3}));
  EXPECT_EQ(FloatsOf(TensorOf<std::uint16_t>(kScale, TensorDtype::kBf16, {0x3f80, 0xc000})),
            (Floats{1, -2}));
  EXPECT_EQ(FloatsOf(TensorOf<std::uint16_t>(kScale, TensorDtype::kF16, {0x3c00, 0xc000})),
            (Floats{1, -2}));
  EXPECT_EQ(FloatsOf(TensorOf<std::uint8_t>(kScale, TensorDtype::kF8E4m3, {0x38, 0x7e})),
            (Floats{1, 448}));
  EXPECT_EQ(FloatsOf(TensorOf<std::uint8_t>(kScale, TensorDtype::kF8E8m0, {127, 130})),
            (Floats{1, 8}));
}

// R89: only compressed-tensors' NVFP4 stores reciprocals.
TEST(RawProjectionTest, InputScalesGrowWithTheInputsInEveryLayout) {
  const RawTensor four = TensorOf<float>(TensorRole::kInputScale, TensorDtype::kF32, {4});
  EXPECT_EQ(InputScaleIn({.layout = QuantLayout::kNvfp4ModelOpt}, four), 4);
  EXPECT_EQ(InputScaleIn({.layout = QuantLayout::kNvfp4Compressed}, four), 0.25F);
  EXPECT_EQ(InputScaleIn({.layout = QuantLayout::kW4Afp8}, four), 4);
}

}  // namespace
}  // namespace switchyard
