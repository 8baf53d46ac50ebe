#include "model/quant/expert_values.h"

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/model/quant/golden_folder.h"

namespace switchyard {
namespace {

using testing::GoldenRows;
using testing::OpenGolden;

class ExpertValuesTest : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> GoldenNames() {
  std::vector<std::string> names;
  for (const testing::GoldenRow& row : GoldenRows()) {
    if (names.empty() || names.back() != row.checkpoint) names.push_back(row.checkpoint);
  }
  return names;
}

// Values of these have no factor but the scales of groups, which are multiplied in.
bool RoundsValues(QuantLayout layout, const RawProjection& raw) {
  switch (layout) {
    case QuantLayout::kBf16:
    case QuantLayout::kAwq:
    case QuantLayout::kPackQuantized:
    case QuantLayout::kW4Afp8:
      return true;
    case QuantLayout::kModelSlimW4A8:
      return raw.Find(TensorRole::kScaleSecond) != nullptr;
    default:
      return false;
  }
}

// R74..R85: whatever the layout, kernels get the weights of its definition: exact beside their
// scales, or rounded to BF16 once.
TEST_P(ExpertValuesTest, AreTheDequantisedWeights) {
  SY_ASSERT_OK_AND_ASSIGN(const auto layer, OpenGolden(GetParam()));
  for (const testing::GoldenRow& row : GoldenRows()) {
    if (row.checkpoint != GetParam()) continue;
    SY_ASSERT_OK_AND_ASSIGN(const RawExpert expert, layer.experts->Load(row.expert));
    const std::vector<float> want = Dequantize(expert.of(row.projection));

    const ProjectionValues got = ValuesOf(expert.of(row.projection));

    ASSERT_EQ(got.values.size(), want.size());
    const RawProjection& raw = expert.of(row.projection);
    const QuantLayout layout = raw.quant.layout;
    for (std::size_t i = 0; i < want.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t k_count = raw.size.columns;
      const float scale = got.scales.view().At(at / k_count, at % k_count, k_count);
      const float value = Bf16ToFloat(got.values[i]);
      if (RoundsValues(layout, raw)) {
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
