#include "model/quant/layout/row_decoders.h"

#include "gtest/gtest.h"

#include "tests/model/quant/layout/raw_tensors.h"

namespace switchyard {
namespace {

using testing::TensorOf;

// All rows of a projection of `size`, as the decoder of its layout gives them.
std::vector<float> Codes(QuantLayout layout, const ProjectionSize& size,
                         std::vector<RawTensor> tensors) {
  const RawProjection raw{{.layout = layout}, size, std::move(tensors)};
  const RowDecoder& decoder = QuantLayoutInfoOf(layout).decoder;
  std::vector<float> out(static_cast<std::size_t>(size.rows * size.columns));
  for (std::int64_t n = 0; n < size.rows; n += decoder.rows) {
    decoder.decode(raw, n, out.data() + n * size.columns);
  }
  return out;
}

RawTensor Bytes(const std::vector<std::uint8_t>& bytes) {
  return TensorOf(TensorRole::kWeight, TensorDtype::kU8, bytes);
}

using Floats = std::vector<float>;

TEST(RowDecodersTest, OneNumberInEachElement) {
  EXPECT_EQ(
      Codes(QuantLayout::kBf16, {2, 1},
            {TensorOf<std::uint16_t>(TensorRole::kWeight, TensorDtype::kBf16, {0x3f80, 0xc000})}),
      (Floats{1, -2}));
  EXPECT_EQ(Codes(QuantLayout::kFp8Channel, {1, 2}, {Bytes({0x38, 0xfe})}), (Floats{1, -448}));
  EXPECT_EQ(Codes(QuantLayout::kInt8Channel, {2, 1}, {Bytes({0x7f, 0x80})}), (Floats{127, -128}));
  EXPECT_EQ(Codes(QuantLayout::kModelSlimW4A4, {1, 2}, {Bytes({0x07, 0xf8})}), (Floats{7, -8}));
}

TEST(RowDecodersTest, TwoNumbersOfARowInEachByte) {
  EXPECT_EQ(Codes(QuantLayout::kW4Afp8, {2, 2}, {Bytes({0x81, 0x7f})}), (Floats{1, -8, -1, 7}));
  EXPECT_EQ(Codes(QuantLayout::kNvfp4ModelOpt, {1, 2}, {Bytes({0xf1})}), (Floats{0.5F, -6}));
}

TEST(RowDecodersTest, TwoRowsInEachByte) {
  EXPECT_EQ(Codes(QuantLayout::kModelSlimW4A8, {2, 2}, {Bytes({0x81, 0x7f})}),
            (Floats{1, -1, -8, 7}));
}

TEST(RowDecodersTest, EightNumbersInEachWord) {
  const auto words = [](TensorRole role, std::vector<std::uint32_t> values) {
    return TensorOf(role, TensorDtype::kI32, values);
  };
  EXPECT_EQ(Codes(QuantLayout::kPackQuantized, {1, 8}, {words(TensorRole::kWeight, {0x76543210})}),
            (Floats{-8, -7, -6, -5, -4, -3, -2, -1}));
  // Row 8j + {0, 2, 4, 6, 1, 3, 5, 7}[i] is in nibble i.
  EXPECT_EQ(Codes(QuantLayout::kAwq, {8, 1},
                  {words(TensorRole::kWeight, {0x76543210}),
                   words(TensorRole::kZeroPoints, {0x11111111})}),
            (Floats{-1, 3, 0, 4, 1, 5, 2, 6}));
}

}  // namespace
}  // namespace switchyard
