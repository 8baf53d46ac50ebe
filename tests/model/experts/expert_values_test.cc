#include "model/experts/expert_values.h"

#include <array>
#include <bit>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "model/quant/layout/tensor_values.h"
#include "tests/model/quant/golden_folder.h"
#include "tests/model/quant/weight_formulas.h"

namespace switchyard {
namespace {

using testing::GoldenRows;
using testing::OpenGolden;
using testing::WeightsByFormula;

class ExpertValuesTest : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const testing::GoldenRow& row : GoldenRows()) {
    if (names.empty() || names.back() != row.checkpoint) names.push_back(row.checkpoint);
  }
  return names;
}

// True when the scales of groups are multiplied into the values, as for groups that end within 128
// of K.
bool RoundsValues(const RawProjection& raw) {
  const bool cut = raw.quant.group_size != 0 && raw.quant.group_size != raw.size.columns &&
                   raw.quant.group_size % kScaleBlock != 0;
  switch (raw.quant.layout) {
    case QuantLayout::kBf16:
      return true;
    case QuantLayout::kAwq:
    case QuantLayout::kPackQuantized:
    case QuantLayout::kW4Afp8:
    case QuantLayout::kModelSlimW4A8:
      return cut;
    default:
      return false;
  }
}

// R74..R85: whatever the layout, kernels get the weights of its definition: exact beside their
// scales, or rounded to BF16 once.
TEST_P(ExpertValuesTest, AreTheDequantizedWeights) {
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, OpenGolden(GetParam()));
  for (const testing::GoldenRow& row : GoldenRows()) {
    if (row.checkpoint != GetParam()) continue;
    SY_ASSERT_OK_AND_ASSIGN(const RawExpert expert, layer.experts->Load(row.expert));
    const std::vector<float> want = WeightsByFormula(expert.of(row.projection));

    const ProjectionValues got = ValuesOf(expert.of(row.projection));

    ASSERT_EQ(got.values.size(), want.size());
    const RawProjection& raw = expert.of(row.projection);
    const QuantLayout layout = raw.quant.layout;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t k_count = raw.size.columns;
      const float scale = got.scales.view().At(at / k_count, at % k_count, k_count);
      const float value = Bf16ToFloat(got.values[i]);
      if (RoundsValues(raw)) {
        ASSERT_EQ(got.scales, WeightScales{});
        ASSERT_EQ(got.values[i], FloatToBf16(want[i])) << i;
      } else if (layout == QuantLayout::kNvfp4Compressed) {  // a quotient there, a product here
        ASSERT_NEAR(value * scale, want[i], std::fabs(want[i]) * 3e-7F) << i;
      } else {
        ASSERT_EQ(value * scale, want[i]) << "nothing is lost beside the scales, " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, ExpertValuesTest, ::testing::ValuesIn(GoldenNames()),
                         [](const auto& param) { return param.param; });

constexpr std::int64_t kRows = 8;
constexpr std::int64_t kColumns = 768;

// Random scales of every magnitude that products in F16 can have.
RawTensor RandomScales(TensorRole role, std::int64_t count, bool signs, Rng& rng) {
  std::vector<std::byte> bytes;
  for (std::int64_t i = 0; i < count; ++i) {
    const bool negative = signs && rng.Below(2) == 0;
    const auto scale = static_cast<float>((0.01 + rng.Uniform()) * (negative ? -1 : 1));
    const auto of = std::bit_cast<std::array<std::byte, sizeof(float)>>(scale);
    bytes.insert(bytes.end(), of.begin(), of.end());
  }
  return {role, TensorDtype::kF32, {count}, std::move(bytes)};
}

RawTensor RandomCodes(TensorRole role, std::int64_t count, Rng& rng) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count / 2));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.Next());
  return {role, TensorDtype::kI8, {count / 2}, std::move(bytes)};
}

// INT4 of [kRows, kColumns] with a scale for each output and `group` columns.
RawProjection RandomInt4(QuantLayout layout, std::int32_t group, std::uint64_t seed) {
  SeededRng rng(seed);
  const std::int64_t groups = kRows * (kColumns / group);
  RawProjection raw{{.layout = layout, .group_size = group}, {kRows, kColumns}, {}};
  raw.tensors.push_back(RandomCodes(TensorRole::kWeight, kRows * kColumns, rng));
  const bool twice = layout == QuantLayout::kModelSlimW4A8;
  raw.tensors.push_back(RandomScales(TensorRole::kScale, twice ? kRows : groups,
                                     QuantLayoutInfoOf(layout).scales_may_be_negative, rng));
  if (twice) raw.tensors.push_back(RandomScales(TensorRole::kScaleSecond, groups, false, rng));
  if (layout == QuantLayout::kAwq) {
    raw.tensors.push_back(RandomCodes(TensorRole::kZeroPoints, groups, rng));
  }
  return raw;
}

// Kernels sum each 128 of K by itself: there scales of groups stay outside, and values are
// integers.
TEST(GroupScalesTest, StayApartWhereGroupsAreWhole128sOfKOrAllOfIt) {
  constexpr auto kScales = static_cast<std::size_t>(kRows * kColumns / kScaleBlock);
  for (const QuantLayout layout : {QuantLayout::kW4Afp8, QuantLayout::kModelSlimW4A8,
                                   QuantLayout::kPackQuantized, QuantLayout::kAwq}) {
    for (const std::int32_t group : {32, 64, 96, 128, 192, 256, 384, 768}) {
      SCOPED_TRACE(absl::StrCat(QuantLayoutInfoOf(layout).name, " in groups of ", group));
      const RawProjection raw = RandomInt4(layout, group, static_cast<std::uint64_t>(group));
      const std::vector<float> want = WeightsByFormula(raw);

      const ProjectionValues got = ValuesOf(raw);

      const bool all = group == kColumns && !QuantLayoutInfoOf(layout).scales_may_be_negative;
      const bool apart = all || group % kScaleBlock == 0;
      EXPECT_EQ(got.scales.channels.size(), all ? kRows : 0U);
      EXPECT_EQ(got.scales.groups.size(), apart && !all ? kScales : 0U);
      for (std::size_t i = 0; i < want.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const float value = Bf16ToFloat(got.values[i]);
        if (apart) {
          ASSERT_EQ(value, std::nearbyint(value)) << i;
          const float scale = got.scales.view().At(at / kColumns, at % kColumns, kColumns);
          ASSERT_EQ(value * scale, want[i]) << i;
        } else {
          ASSERT_EQ(got.values[i], FloatToBf16(want[i])) << i;
        }
      }
    }
  }
}

ExpertActivations ActivationsIn(const std::string& golden, LayerInputScales* scales) {
  auto layer = OpenGolden(golden);
  EXPECT_TRUE(layer.ok()) << layer.status();
  auto expert = layer->experts->Load(0);
  EXPECT_TRUE(expert.ok()) << expert.status();
  auto read = layer->experts->InputScales();
  EXPECT_TRUE(read.ok()) << read.status();
  *scales = *read;
  return ActivationsOf(layer->experts->quant(), *expert, *read);
}

TEST(ActivationsOfTest, AreThoseOfTheScheme) {
  const struct {
    const char* golden;
    ActivationFormat inputs;
    ActivationFormat middle;
  } rows[] = {
      {"fp8_block", ActivationFormat::kFp8Group, ActivationFormat::kFp8Group},
      {"fp8_block_ue8m0", ActivationFormat::kFp8GroupPow2, ActivationFormat::kFp8GroupPow2},
      {"fp8_block_compressed", ActivationFormat::kFp8Group, ActivationFormat::kFp8Group},
      {"fp8_tensor_static", ActivationFormat::kFp8Static, ActivationFormat::kFp8Static},
      {"fp8_tensor_dynamic", ActivationFormat::kFp8Row, ActivationFormat::kFp8Row},
      {"fp8_channel", ActivationFormat::kFp8Row, ActivationFormat::kFp8Row},
      {"nvfp4_modelopt_flat", ActivationFormat::kNvfp4, ActivationFormat::kNvfp4},
      {"nvfp4_compressed", ActivationFormat::kNvfp4, ActivationFormat::kNvfp4},
      {"w4afp8", ActivationFormat::kFp8Static, ActivationFormat::kFp8Static},
      {"w8a8_compressed", ActivationFormat::kInt8Row, ActivationFormat::kInt8Row},
      {"modelslim_w8a8", ActivationFormat::kInt8Row, ActivationFormat::kInt8Row},
      {"modelslim_w4a8_group", ActivationFormat::kInt8Row, ActivationFormat::kInt8Row},
      {"modelslim_w4a4", ActivationFormat::kInt4Row, ActivationFormat::kInt8Row},
      {"w4a16_kimi", ActivationFormat::kBf16, ActivationFormat::kBf16},
      {"awq", ActivationFormat::kBf16, ActivationFormat::kBf16},
      {"bf16_packed", ActivationFormat::kBf16, ActivationFormat::kBf16},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.golden);
    LayerInputScales scales;
    const ExpertActivations found = ActivationsIn(row.golden, &scales);
    EXPECT_EQ(found.inputs.format, row.inputs);
    EXPECT_EQ(found.middle.format, row.middle);
  }
}

TEST(ActivationsOfTest, StaticScalesAreTheLargestOfTheLayer) {
  LayerInputScales scales;
  for (const char* golden : {"w4afp8", "fp8_tensor_static"}) {
    const ExpertActivations found = ActivationsIn(golden, &scales);
    EXPECT_EQ(found.inputs.scale, scales.gate_up_max);
    EXPECT_EQ(found.middle.scale, scales.down_max);
  }
}

// R89: the same tensor has reciprocal numbers in ModelOpt and compressed-tensors.
TEST(ActivationsOfTest, Nvfp4ScalesAreGlobalScalesInBothSpellings) {
  for (const char* golden : {"nvfp4_modelopt_flat", "nvfp4_compressed"}) {
    LayerInputScales scales;
    const ExpertActivations found = ActivationsIn(golden, &scales);
    EXPECT_GE(1.0F / found.inputs.scale, scales.gate_up_min * 0.999F);
    EXPECT_LE(1.0F / found.inputs.scale, scales.gate_up_max * 1.001F);
    EXPECT_GE(1.0F / found.middle.scale, scales.down_min * 0.999F);
    EXPECT_LE(1.0F / found.middle.scale, scales.down_max * 1.001F);
  }
}

}  // namespace
}  // namespace switchyard
