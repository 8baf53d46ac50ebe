#include "quantize/encode.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/format/bf16.h"
#include "core/format/fp4.h"
#include "core/format/fp8.h"
#include "core/format/nvfp4_scale.h"
#include "core/rng.h"
#include "model/quant/layout/dequantize.h"
#include "model/quant/layout/expected_tensors.h"
#include "quantize/scheme_table.h"
#include "tests/quantize/step_bounds.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::AllBoundsOf;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;

constexpr LayerSizes kSizes{.hidden = 256, .intermediate = 384};
constexpr float kBf16Max = 0x1.fep127F;

// BF16 values of many magnitudes, as trained weights are: no zeros, a few far out.
std::vector<float> RandomWeights(std::int64_t count, std::uint64_t seed) {
  SeededRng rng(seed);
  std::vector<float> weights;
  for (std::int64_t i = 0; i < count; ++i) {
    const double sum = rng.Uniform() + rng.Uniform() + rng.Uniform() - 1.5;
    const double wide = rng.Below(97) == 0 ? 8 : 1;
    weights.push_back(Bf16ToFloat(FloatToBf16(static_cast<float>((sum * wide + 1e-4) * 0.04))));
  }
  return weights;
}

EncodeRequest RequestOf(const WriteScheme& scheme, Projection projection,
                        const std::vector<float>& weights) {
  return {.quant = scheme.of(projection),
          .projection = projection,
          .size = kSizes.of(projection),
          .weights = weights,
          .module = "m.experts.7.some_proj",
          .global_amax = AmaxOf(weights),
          .input_amax = 5.5F};
}

struct EncodeCase {
  const WriteScheme* scheme;
  Projection projection;

  [[nodiscard]] std::string Name() const {
    return std::string(scheme->name) + "_" + std::string(ProjectionName(projection));
  }
};
void PrintTo(const EncodeCase& one, std::ostream* out) { *out << one.Name(); }

std::vector<EncodeCase> AllCases() {
  std::vector<EncodeCase> cases;
  for (const WriteScheme& scheme : WriteSchemes()) {
    for (const Projection projection : {Projection::kGate, Projection::kDown}) {
      cases.push_back({&scheme, projection});
    }
  }
  return cases;
}

class EncodeTest : public ::testing::TestWithParam<EncodeCase> {
 protected:
  [[nodiscard]] const WriteScheme& scheme() const { return *GetParam().scheme; }
  [[nodiscard]] Projection projection() const { return GetParam().projection; }
  [[nodiscard]] ProjectionSize size() const { return kSizes.of(projection()); }
  [[nodiscard]] std::int64_t count() const { return size().rows * size().columns; }
  [[nodiscard]] absl::StatusOr<RawProjection> EncodeAll(const std::vector<float>& weights) const {
    return Encode(RequestOf(scheme(), projection(), weights));
  }
};

void ExpectSameBytes(const RawProjection& a, const RawProjection& b) {
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].bytes, b.tensors[i].bytes) << "tensor " << i;
  }
}

// R74 to R85: what is written has the names, dtypes and shapes that readers expect.
TEST_P(EncodeTest, GivesTheTensorsOfItsLayout) {
  SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, EncodeAll(RandomWeights(count(), 1)));
  SY_ASSERT_OK_AND_ASSIGN(const std::vector<ExpectedTensor> expected,
                          ExpectedTensors(scheme().of(projection()), projection(), size()));

  std::size_t found = 0;
  for (const ExpectedTensor& wanted : expected) {
    const RawTensor* tensor = raw.Find(wanted.role);
    ASSERT_NE(tensor, nullptr) << wanted.suffix;
    ++found;
    EXPECT_THAT(wanted.dtypes, ::testing::Contains(tensor->dtype)) << wanted.suffix;
    if (!wanted.shape.empty()) {
      EXPECT_EQ(tensor->shape, wanted.shape) << wanted.suffix;
    }
    std::uint64_t bits = TensorDtypeBits(tensor->dtype);
    for (const std::int64_t dim : tensor->shape) bits *= static_cast<std::uint64_t>(dim);
    EXPECT_EQ(tensor->bytes.size() * 8, bits) << wanted.suffix;
  }
  EXPECT_EQ(found, raw.tensors.size());
}

// R74 to R85: no element is further from its weight than the format's step allows.
TEST_P(EncodeTest, EveryElementIsWithinTheStepOfTheFormat) {
  const std::vector<float> weights = RandomWeights(count(), 2);

  SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, EncodeAll(weights));

  const std::vector<float> back = Dequantize(raw);
  const std::vector<double> bounds = AllBoundsOf(raw.quant, size(), weights);
  ASSERT_EQ(back.size(), weights.size());
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ASSERT_LE(std::abs(static_cast<double>(back[i]) - static_cast<double>(weights[i])), bounds[i])
        << "element " << i << ", weight " << weights[i] << ", back " << back[i];
  }
}

TEST_P(EncodeTest, KeepsWhatTheFormatHoldsExactly) {
  const std::vector<float> weights =
      testing::RepresentableWeights(scheme().of(projection()), size(), /*seed=*/3);

  SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, EncodeAll(weights));

  const std::vector<float> back = Dequantize(raw);
  for (std::size_t i = 0; i < weights.size(); ++i) ASSERT_EQ(back[i], weights[i]) << i;
  SY_ASSERT_OK_AND_ASSIGN(const RawProjection again, EncodeAll(back));
  ExpectSameBytes(raw, again);
}

TEST_P(EncodeTest, ZerosStayZeros) {
  const std::vector<float> zeros(static_cast<std::size_t>(count()), 0.0F);

  SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, EncodeAll(zeros));

  EXPECT_EQ(Dequantize(raw), zeros);
  for (const RawTensor& tensor : raw.tensors) {
    if (tensor.role != TensorRole::kGlobalScale && tensor.role != TensorRole::kInputScale) continue;
    EXPECT_GT(FloatAt(tensor, 0), 0);
    EXPECT_TRUE(std::isfinite(FloatAt(tensor, 0)));
  }
}

// A row of zeros, a row of the smallest numbers of all, and ordinary ones beside them.
TEST_P(EncodeTest, SmallRowsBesideLargeOnesStayFiniteAndNear) {
  std::vector<float> weights = RandomWeights(count(), 4);
  const auto columns = static_cast<std::size_t>(size().columns);
  for (std::size_t k = 0; k < columns; ++k) {
    weights[k] = 0;
    weights[columns + k] = k % 2 == 0 ? 0x1p-133F : -0x1p-133F;
    weights[2 * columns + k] = k % 3 == 0 ? 1e-7F : -3e-8F;
  }

  SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, EncodeAll(weights));

  const std::vector<float> back = Dequantize(raw);
  const std::vector<double> bounds = AllBoundsOf(raw.quant, size(), weights);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ASSERT_LE(std::abs(static_cast<double>(back[i]) - static_cast<double>(weights[i])), bounds[i])
        << "element " << i << ", weight " << weights[i] << ", back " << back[i];
  }
}

// The largest BF16: held, or refused by name where a scale of the layout cannot reach it.
TEST_P(EncodeTest, TheLargestWeightsAreHeldOrRefused) {
  std::vector<float> weights = RandomWeights(count(), 5);
  weights[3] = kBf16Max;
  weights[4] = -kBf16Max;

  const absl::StatusOr<RawProjection> raw = EncodeAll(weights);

  const ProjectionQuant& quant = scheme().of(projection());
  const bool nvfp4 =
      quant.layout == QuantLayout::kNvfp4ModelOpt || quant.layout == QuantLayout::kNvfp4Compressed;
  const bool f16 = quant.layout == QuantLayout::kAwq ||
                   (quant.layout == QuantLayout::kModelSlimW4A8 && quant.group_size > 0);
  if (nvfp4) {
    EXPECT_THAT(raw, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    EXPECT_THAT(std::string(raw.status().message()), HasSubstr("m.experts.7.some_proj"));
  } else if (f16) {
    EXPECT_THAT(raw, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
    EXPECT_EQ(MetadataOf(raw.status())["tensor"], "m.experts.7.some_proj.weight");
  } else {
    SY_ASSERT_OK(raw);
    for (const float value : Dequantize(*raw)) ASSERT_TRUE(std::isfinite(value));
    EXPECT_NEAR(Dequantize(*raw)[3] / kBf16Max, 1, 0.07);
    EXPECT_NEAR(Dequantize(*raw)[4] / kBf16Max, -1, 0.07);
  }
}

TEST_P(EncodeTest, RefusesWhatIsNoNumberAndNamesIt) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    std::vector<float> weights = RandomWeights(count(), 6);
    weights[static_cast<std::size_t>(2 * size().columns + 5)] = bad;

    const absl::StatusOr<RawProjection> raw = EncodeAll(weights);

    EXPECT_THAT(raw, FailsWith(absl::StatusCode::kDataLoss, Reason::kCheckpoint));
    EXPECT_EQ(MetadataOf(raw.status())["kind"], "WRONG_VALUE");
    EXPECT_EQ(MetadataOf(raw.status())["tensor"], "m.experts.7.some_proj.weight");
    EXPECT_THAT(std::string(raw.status().message()), HasSubstr("[2, 5]"));
  }
}

TEST_P(EncodeTest, StaticInputsNeedAMagnitude) {
  const std::vector<float> weights = RandomWeights(count(), 7);
  EncodeRequest request = RequestOf(scheme(), projection(), weights);
  request.input_amax = 0;

  if (scheme().of(projection()).static_inputs) {
    EXPECT_THAT(Encode(request), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  } else {
    SY_EXPECT_OK(Encode(request));
  }
}

INSTANTIATE_TEST_SUITE_P(AllSchemes, EncodeTest, ::testing::ValuesIn(AllCases()),
                         [](const auto& param_info) { return param_info.param.Name(); });

const WriteScheme& Scheme(const char* name) { return **FindWriteScheme(name); }

// One row of weights (two for layouts that pack rows), the rest of the matrix zeros.
absl::StatusOr<RawProjection> EncodeRow(const char* scheme, std::vector<float> row,
                                        std::int64_t rows = 8, std::int64_t columns = 128) {
  row.resize(static_cast<std::size_t>(rows * columns), 0.0F);
  return Encode({.quant = Scheme(scheme).gate_up,
                 .projection = Projection::kGate,
                 .size = {rows, columns},
                 .weights = row,
                 .module = "row",
                 .input_amax = 2.0F});
}

std::vector<float> FirstOf(const absl::StatusOr<RawProjection>& raw, std::size_t count) {
  std::vector<float> all = Dequantize(*raw);
  all.resize(count);
  return all;
}

TEST(EncodeTiesTest, Fp8TiesGoToTheEvenCode) {
  for (const char* scheme : {"fp8_block", "fp8_block_ue8m0", "fp8_tensor",
                             "compressed_tensors_fp8_channel", "compressed_tensors_fp8_block"}) {
    const auto raw = EncodeRow(scheme, {448, 17, 19, -17, -19, 0x1p-10F, 0x1.8p-9F});
    SY_ASSERT_OK(raw);
    EXPECT_THAT(FirstOf(raw, 7), ElementsAre(448, 16, 20, -16, -20, 0, 0x1p-8F)) << scheme;
  }
}

TEST(EncodeTiesTest, Int8TiesGoToTheEvenNumber) {
  for (const char* scheme : {"compressed_tensors_int8", "modelslim_w8a8"}) {
    const auto raw = EncodeRow(scheme, {127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5});
    SY_ASSERT_OK(raw);
    EXPECT_THAT(FirstOf(raw, 7), ElementsAre(127, 0, 2, 2, 0, -2, -2)) << scheme;
  }
}

TEST(EncodeTiesTest, Int4TiesGoToTheEvenNumber) {
  for (const char* scheme : {"w4afp8", "compressed_tensors_int4", "modelslim_w4a8",
                             "modelslim_w4a8_group", "modelslim_w4a4", "awq"}) {
    const auto raw = EncodeRow(scheme, {7, -8, 0.5, 1.5, 2.5, -0.5, -1.5, -7.5, 6.5});
    SY_ASSERT_OK(raw);
    EXPECT_THAT(FirstOf(raw, 9), ElementsAre(7, -8, 0, 2, 2, 0, -2, -8, 6)) << scheme;
  }
}

// R88: the tie goldens of E2M1, through an encoder.
TEST(EncodeTiesTest, E2m1TiesAreTheGoldens) {
  for (const char* scheme : {"modelopt_nvfp4", "compressed_tensors_nvfp4"}) {
    const std::vector<float> ties{6, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, -0.75, -5};
    const auto raw = EncodeRow(scheme, [&] {
      std::vector<float> scaled;
      for (const float tie : ties) scaled.push_back(tie * 448);
      return scaled;
    }());
    SY_ASSERT_OK(raw);
    std::vector<float> back = FirstOf(raw, ties.size());
    for (float& value : back) value /= 448;
    EXPECT_THAT(back, ElementsAre(6, 0, 1, 1, 2, 2, 4, 4, -1, -4)) << scheme;
  }
}

// R74: the UE8M0 goldens of the wire format hold for blocks of weights.
TEST(EncodeFp8Test, PowerOfTwoScalesAreTheGoldens) {
  const std::pair<float, int> goldens[] = {{1.0F, 119},   {3.5F, 120},    {7.0F, 121},
                                           {448.0F, 127}, {1000.0F, 129}, {0.0F, 105}};
  for (const auto& [amax, byte] : goldens) {
    SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, EncodeRow("fp8_block_ue8m0", {0, -amax}));
    const RawTensor& scale = *raw.Find(TensorRole::kScale);
    EXPECT_EQ(scale.dtype, TensorDtype::kF8E8m0);
    EXPECT_EQ(static_cast<int>(scale.bytes[0]), byte) << amax;
  }
}

// R86: sizes that are no multiple of 128 have smaller last blocks.
TEST(EncodeFp8Test, LastBlocksMayBeSmaller) {
  const ProjectionSize size{130, 200};
  std::vector<float> weights = RandomWeights(size.rows * size.columns, 8);
  weights.back() = 96;  // in the last block's corner: only that block's scale depends on it

  SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, Encode({.quant = Scheme("fp8_block").gate_up,
                                                           .size = size,
                                                           .weights = weights,
                                                           .module = "edge"}));

  const RawTensor& scale = *raw.Find(TensorRole::kScale);
  EXPECT_THAT(scale.shape, ElementsAre(2, 2));
  EXPECT_EQ(FloatAt(scale, 3), 96.0F / 448.0F);
  EXPECT_LT(FloatAt(scale, 0), 1e-2F);
  EXPECT_NEAR(Dequantize(raw).back(), 96.0F, 1e-4F);
}

TEST(EncodeSizeTest, SizesThatALayoutCannotHoldAreRefused) {
  const std::vector<float> weights = RandomWeights(8 * 40, 9);
  for (const char* scheme :
       {"modelopt_nvfp4", "w4afp8", "compressed_tensors_int4", "awq", "modelslim_w4a8_group"}) {
    EXPECT_THAT(Encode({.quant = Scheme(scheme).gate_up,
                        .size = {8, 40},
                        .weights = weights,
                        .module = "small",
                        .input_amax = 1}),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig))
        << scheme;
  }
}

TEST(EncodeInputScaleTest, IsWhatEachToolStores) {
  SY_ASSERT_OK_AND_ASSIGN(const RawProjection fp8, EncodeRow("fp8_tensor_static", {1}));
  EXPECT_EQ(FloatAt(*fp8.Find(TensorRole::kInputScale), 0), 2.0F / 448.0F);
  SY_ASSERT_OK_AND_ASSIGN(const RawProjection w4, EncodeRow("w4afp8", {1}));
  EXPECT_EQ(w4.Find(TensorRole::kInputScale)->dtype, TensorDtype::kBf16);
  EXPECT_EQ(FloatAt(*w4.Find(TensorRole::kInputScale), 0), Bf16ToFloat(FloatToBf16(2.0F / 448.0F)));
  SY_ASSERT_OK_AND_ASSIGN(const RawProjection modelopt, EncodeRow("modelopt_nvfp4", {1}));
  EXPECT_EQ(FloatAt(*modelopt.Find(TensorRole::kInputScale), 0), 2.0F / (448.0F * 6.0F));
}

// R89: the same weights in the two spellings of NVFP4 have the same codes and reciprocal scales.
TEST(EncodeNvfp4Test, TheTwoSpellingsAreReciprocal) {
  const std::vector<float> weights = RandomWeights(8 * 128, 10);
  SY_ASSERT_OK_AND_ASSIGN(const RawProjection ours, EncodeRow("modelopt_nvfp4", weights));
  SY_ASSERT_OK_AND_ASSIGN(const RawProjection theirs,
                          EncodeRow("compressed_tensors_nvfp4", weights));

  EXPECT_EQ(ours.Find(TensorRole::kWeight)->bytes, theirs.Find(TensorRole::kWeight)->bytes);
  EXPECT_EQ(ours.Find(TensorRole::kScale)->bytes, theirs.Find(TensorRole::kScale)->bytes);
  for (const TensorRole role : {TensorRole::kGlobalScale, TensorRole::kInputScale}) {
    EXPECT_NEAR(FloatAt(*ours.Find(role), 0) * FloatAt(*theirs.Find(role), 0), 1.0F, 1e-6F);
  }
}

// R87: gate and up of an expert share a global scale, so nothing has to be warned about.
TEST(EncodeNvfp4Test, TheGlobalScaleIsThatOfTheSharedMagnitude) {
  const std::vector<float> small(8 * 128, 0.25F);
  EncodeRequest request{.quant = Scheme("modelopt_nvfp4").gate_up,
                        .size = {8, 128},
                        .weights = small,
                        .module = "up",
                        .global_amax = 2.0F,
                        .input_amax = 1};

  SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, Encode(request));

  EXPECT_EQ(FloatAt(*raw.Find(TensorRole::kGlobalScale), 0), 2.0F / 2688.0F);
  EXPECT_EQ(FloatAt(*raw.Find(TensorRole::kScale), 5), 56.0F);  // 448 * 0.25 / 2
}

// R82: scale_bias is 8 times the sum of a row's weights, down's in 16 parts of the columns.
TEST(EncodeModelSlimTest, ScaleBiasSumsWhatTheWeightsAre) {
  for (const char* name : {"modelslim_w4a8", "modelslim_w4a8_group"}) {
    for (const auto& [projection, parts] :
         {std::pair{Projection::kGate, 1}, std::pair{Projection::kDown, 16}}) {
      const ProjectionSize size{16, 256};
      const std::vector<float> weights = RandomWeights(size.rows * size.columns, 11);
      SY_ASSERT_OK_AND_ASSIGN(const RawProjection raw, Encode({.quant = Scheme(name).gate_up,
                                                               .projection = projection,
                                                               .size = size,
                                                               .weights = weights,
                                                               .module = "w4a8"}));
      const std::vector<float> back = Dequantize(raw);
      const RawTensor& bias = *raw.Find(TensorRole::kScaleBias);
      ASSERT_EQ(bias.bytes.size(), static_cast<std::size_t>(size.rows * parts) * 4);
      const std::int64_t width = size.columns / parts;
      for (std::int64_t i = 0; i < size.rows * parts; ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k < width; ++k)
          sum += back[static_cast<std::size_t>(i * width + k)];
        EXPECT_NEAR(FloatAt(bias, i), 8 * sum, 1e-5) << name << " " << i;
      }
    }
  }
}

// R93: one row of consecutive integers shows where each nibble goes.
TEST(EncodeInt4Test, NibblesLieWhereEachToolLooksForThem) {
  std::vector<float> row(128, 0.0F);
  for (std::size_t k = 0; k < 8; ++k) row[k] = static_cast<float>(k);
  row[8] = -8;
  const auto word_of = [](const RawProjection& raw, std::size_t index) {
    std::uint32_t word = 0;
    std::memcpy(&word, raw.Find(TensorRole::kWeight)->bytes.data() + 4 * index, 4);
    return word;
  };

  SY_ASSERT_OK_AND_ASSIGN(const RawProjection packed, EncodeRow("compressed_tensors_int4", row));
  EXPECT_EQ(word_of(packed, 0), 0xfedcba98U);  // value + 8, k = 0 lowest

  SY_ASSERT_OK_AND_ASSIGN(const RawProjection paired, EncodeRow("w4afp8", row));
  EXPECT_EQ(word_of(paired, 0), 0x76543210U);  // the even k in the low nibble

  // Column n of AWQ is row n of the weights: [n][0] = n for all n of a word of its own.
  std::vector<float> column(8 * 128, 0.0F);
  for (std::size_t n = 0; n < 8; ++n) {
    column[n * 128] = static_cast<float>(n);
    column[n * 128 + 1] = -8;
    column[n * 128 + 2] = 7;
  }
  SY_ASSERT_OK_AND_ASSIGN(const RawProjection awq, EncodeRow("awq", column));
  // q = w + 8 and nibbles in the order of columns 0, 2, 4, 6, 1, 3, 5, 7, lowest first.
  EXPECT_EQ(word_of(awq, 0), 0xfdb9eca8U);
}

TEST(EncodeBf16Test, KeepsEveryBit) {
  const std::vector<float> weights = RandomWeights(8 * 16, 12);
  SY_ASSERT_OK_AND_ASSIGN(
      const RawProjection raw,
      Encode({.quant = {}, .size = {8, 16}, .weights = weights, .module = "kept"}));
  EXPECT_EQ(Dequantize(raw), weights);
}

}  // namespace
}  // namespace switchyard
