#include "model/quant/layout/dequantize.h"

#include <bit>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"

#include "core/base/hash.h"
#include "core/rng.h"
#include "model/quant/layout/f16.h"
#include "tests/model/quant/golden_folder.h"
#include "tests/model/quant/weight_formulas.h"

namespace switchyard {
namespace {

using testing::GoldenRow;
using testing::GoldenRows;
using testing::OpenGolden;

std::vector<GoldenRow> RowsOf(const std::string& checkpoint) {
  std::vector<GoldenRow> rows;
  for (const GoldenRow& row : GoldenRows()) {
    if (row.checkpoint == checkpoint) rows.push_back(row);
  }
  return rows;
}

// Goal: each layout's weights are those that the format's definition gives, in every bit.
// Method: make_goldens.py writes random checkpoints as the tools of each family write them and
// works their weights out on its own; here they go the whole way from the folder's files.
void ExpectGolden(const std::string& checkpoint) {
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, OpenGolden(checkpoint));
  SY_ASSERT_OK(layer.experts->Check());
  const std::vector<GoldenRow> rows = RowsOf(checkpoint);
  ASSERT_FALSE(rows.empty());
  for (const GoldenRow& row : rows) {
    SCOPED_TRACE(
        absl::StrCat(row.checkpoint, " expert ", row.expert, " ", ProjectionName(row.projection)));
    EXPECT_EQ(QuantSchemeInfoOf(layer.experts->quant().scheme).name, row.scheme);
    SY_ASSERT_OK_AND_ASSIGN(const RawExpert expert, layer.experts->Load(row.expert));

    const std::vector<float> weights = Dequantize(expert.of(row.projection));

    EXPECT_EQ(weights, testing::WeightsByFormula(expert.of(row.projection)));
    std::size_t index = 0;
    for (const absl::string_view first : absl::StrSplit(row.first, ' ')) {
      EXPECT_EQ(weights.at(index), std::strtof(std::string(first).c_str(), nullptr)) << index;
      ++index;
    }
    EXPECT_EQ(Sha256(std::as_bytes(std::span(weights))).ToHex(), row.sha256);
  }
}

// R74, R86: blocks of 128x128; the sizes are no multiples of 128, so blocks at the edges are cut.
TEST(DequantizeTest, Fp8BlocksEqualBruteForceAlsoAtTheEdges) {
  ExpectGolden("fp8_block");
  ExpectGolden("fp8_block_ue8m0");
  ExpectGolden("fp8_block_compressed");
}
// R75
TEST(DequantizeTest, Fp8TensorsEqualBruteForce) {
  ExpectGolden("fp8_tensor_static");
  ExpectGolden("fp8_tensor_dynamic");
}
// R76
TEST(DequantizeTest, Fp8ChannelsEqualBruteForce) { ExpectGolden("fp8_channel"); }
// R77
TEST(DequantizeTest, ModelOptNvfp4EqualsBruteForce) {
  ExpectGolden("nvfp4_modelopt_flat");
  ExpectGolden("nvfp4_modelopt_file");
}
// R78
TEST(DequantizeTest, CompressedTensorsNvfp4EqualsBruteForce) { ExpectGolden("nvfp4_compressed"); }
// R79
TEST(DequantizeTest, W4Afp8EqualsBruteForce) { ExpectGolden("w4afp8"); }
// R80
TEST(DequantizeTest, CompressedTensorsInt8EqualsBruteForce) { ExpectGolden("w8a8_compressed"); }
// R81
TEST(DequantizeTest, ModelSlimW8A8EqualsBruteForce) { ExpectGolden("modelslim_w8a8"); }
// R82
TEST(DequantizeTest, ModelSlimW4A8EqualsBruteForcePerChannelAndPerGroup) {
  ExpectGolden("modelslim_w4a8_channel");
  ExpectGolden("modelslim_w4a8_group");
}
// R83, R92: gate and up hold INT4, down stays INT8.
TEST(DequantizeTest, ModelSlimW4A4EqualsBruteForce) {
  ExpectGolden("modelslim_w4a4");
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, OpenGolden("modelslim_w4a4"));
  EXPECT_EQ(layer.experts->quant().of(Projection::kGate).layout, QuantLayout::kModelSlimW4A4);
  EXPECT_EQ(layer.experts->quant().of(Projection::kDown).layout, QuantLayout::kModelSlimW8A8);
}
// R84
TEST(DequantizeTest, PackedInt4EqualsBruteForce) { ExpectGolden("w4a16_kimi"); }
// R85
TEST(DequantizeTest, AwqEqualsBruteForce) { ExpectGolden("awq"); }

TEST(DequantizeTest, PackedBf16ExpertsAreCutOutOfTheirTensor) { ExpectGolden("bf16_packed"); }

TEST(DequantizeTest, EveryCheckpointOfTheGoldensIsTested) {
  std::set<std::string> checkpoints;
  for (const GoldenRow& row : GoldenRows()) checkpoints.insert(row.checkpoint);
  EXPECT_EQ(checkpoints.size(), 18U);
}

template <typename T>
RawTensor Tensor(TensorRole role, TensorDtype dtype, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {role, dtype, {static_cast<std::int64_t>(values.size())}, {bytes.begin(), bytes.end()}};
}

// R93: the same 32 bits are other weights in the two layouts of eight INT4.
TEST(DequantizeTest, TheSameIntegersAreOtherWeightsInAwqThanPacked) {
  const std::vector<std::uint32_t> words(8, 0x76543210U);
  const std::vector<std::uint32_t> zeros(1, 0);
  const std::vector<float> ones(8, 1.0F);
  const std::vector<F16> half_ones(8, 0x3c00);
  const RawProjection packed{{.layout = QuantLayout::kPackQuantized, .group_size = 8},
                             {8, 8},
                             {Tensor(TensorRole::kWeight, TensorDtype::kI32, words),
                              Tensor(TensorRole::kScale, TensorDtype::kF32, ones)}};
  const RawProjection awq{{.layout = QuantLayout::kAwq, .group_size = 8, .zero_points = true},
                          {8, 8},
                          {Tensor(TensorRole::kWeight, TensorDtype::kI32, words),
                           Tensor(TensorRole::kZeroPoints, TensorDtype::kI32, zeros),
                           Tensor(TensorRole::kScale, TensorDtype::kF16, half_ones)}};

  const std::vector<float> from_packed = Dequantize(packed);
  const std::vector<float> from_awq = Dequantize(awq);

  const std::vector<float> order{0, 4, 1, 5, 2, 6, 3, 7};  // nibble that column n is in
  for (std::size_t n = 0; n < 8; ++n) {
    for (std::size_t k = 0; k < 8; ++k) {
      EXPECT_EQ(from_packed[n * 8 + k], static_cast<float>(k) - 8);
      EXPECT_EQ(from_awq[n * 8 + k], order[n]);
    }
  }
}

// R89: ModelOpt multiplies with its global scale, compressed-tensors divides by its own.
TEST(DequantizeTest, GlobalScalesOfTheTwoNvfp4SpellingsAreReciprocal) {
  SeededRng rng(89);
  std::vector<std::uint8_t> weights(16 * 8);
  std::vector<std::uint8_t> scales(16);
  for (std::uint8_t& byte : weights) byte = static_cast<std::uint8_t>(rng.Next());
  for (std::uint8_t& byte : scales) byte = static_cast<std::uint8_t>(1 + rng.Below(0x7e));
  const auto made = [&](QuantLayout layout, float global) {
    return Dequantize({{.layout = layout, .group_size = 16},
                       {16, 16},
                       {Tensor(TensorRole::kWeight, TensorDtype::kU8, weights),
                        Tensor(TensorRole::kScale, TensorDtype::kF8E4m3, scales),
                        Tensor<float>(TensorRole::kGlobalScale, TensorDtype::kF32, {global})}});
  };

  // A power of two, so that neither spelling rounds.
  EXPECT_EQ(made(QuantLayout::kNvfp4ModelOpt, 0x1p-9F),
            made(QuantLayout::kNvfp4Compressed, 0x1p9F));
  EXPECT_NE(made(QuantLayout::kNvfp4ModelOpt, 0x1p-9F),
            made(QuantLayout::kNvfp4Compressed, 0x1p-9F));
}

// R88: the middle of the table is where decoders have been wrong.
TEST(DequantizeTest, E2m1CodesDecodeToTheirValues) {
  const std::vector<float> values{0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<std::uint8_t> weights;
  for (int code = 0; code < 16; code += 2) {
    weights.push_back(static_cast<std::uint8_t>(code | (code + 1) << 4));
  }
  const std::vector<float> decoded =
      Dequantize({{.layout = QuantLayout::kNvfp4ModelOpt, .group_size = 16},
                  {1, 16},
                  {Tensor(TensorRole::kWeight, TensorDtype::kU8, weights),
                   Tensor<std::uint8_t>(TensorRole::kScale, TensorDtype::kF8E4m3, {0x38}),
                   Tensor<float>(TensorRole::kGlobalScale, TensorDtype::kF32, {1.0F})}});

  for (std::size_t code = 0; code < 8; ++code) {
    EXPECT_EQ(decoded[code], values[code]);
    EXPECT_EQ(decoded[code + 8], -values[code]);
  }
}

// Exact in double arithmetic, from the definition of binary16.
double F16Value(F16 bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

TEST(F16Test, EveryFiniteCodeIsItsValueAndRoundTrips) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto code = static_cast<F16>(bits);
    if ((code >> 10 & 31) == 31) continue;
    ASSERT_EQ(static_cast<double>(F16ToFloat(code)), F16Value(code)) << bits;
    ASSERT_EQ(FloatToF16(F16ToFloat(code)), code) << bits;
  }
  EXPECT_EQ(F16ToFloat(0x7c00), INFINITY);
  EXPECT_EQ(F16ToFloat(0xfc00), -INFINITY);
  EXPECT_TRUE(std::isnan(F16ToFloat(0x7e01)));
  EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(NAN))));
}

// Between each two neighbors: the middle goes to the even one, what is beside it to the nearer.
TEST(F16Test, RoundsToNearestAndTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const float low = F16ToFloat(static_cast<F16>(bits));
    const float high = F16ToFloat(static_cast<F16>(bits + 1));
    const float middle = (low + high) / 2;  // exact: FP32 has 13 bits more
    ASSERT_EQ(FloatToF16(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(FloatToF16(std::nextafter(middle, 0.0F)), bits) << bits;
    ASSERT_EQ(FloatToF16(-std::nextafter(middle, INFINITY)), (bits + 1) | 0x8000U) << bits;
  }
  EXPECT_EQ(FloatToF16(65519.996F), 0x7bff);
  EXPECT_EQ(FloatToF16(65520.0F), 0x7c00);
  EXPECT_EQ(FloatToF16(-INFINITY), 0xfc00);
}

}  // namespace
}  // namespace switchyard
