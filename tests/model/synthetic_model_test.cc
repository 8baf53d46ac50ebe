#include "model/synthetic_model.h"

#include <cmath>
#include <set>
#include <string>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr SyntheticModel kModel{
    .seed = 7, .shape = {.hidden = 96, .intermediate = 40, .experts = 6, .top_k = 3}, .layers = 2};

TEST(SyntheticModelTest, TextRoundTripsAndDefaultsAreOne) {
  SY_ASSERT_OK_AND_ASSIGN(const SyntheticModel again, ParseSyntheticModel(ToString(kModel)));
  EXPECT_EQ(again, kModel);

  SY_ASSERT_OK_AND_ASSIGN(
      const SyntheticModel defaults,
      ParseSyntheticModel("synthetic:top_k=3,experts=6,intermediate=40,hidden=96"));
  EXPECT_EQ(defaults.shape, kModel.shape);
  EXPECT_EQ(defaults.seed, 1U);
  EXPECT_EQ(defaults.layers, 1);
}

TEST(SyntheticModelTest, RefusesBadTextsNamingTheKey) {
  const std::string good = "synthetic:hidden=8,intermediate=4,experts=4,top_k=2";
  const std::pair<std::string, const char*> cases[] = {
      {"synthetic:", "hidden"},
      {"synthetic:hidden=8,intermediate=4,top_k=2", "experts"},
      {good + ",hidden=8", "hidden"},
      {good + ",depth=3", "depth"},
      {good + ",seed=-1", "seed"},
      {good + ",seed=18446744073709551616", "seed"},
      {good + ",seed", "seed"},
      {good + ",layers=0", "layers"},
      {good + ",layers=4097", "layers"},
      {"synthetic:hidden=0,intermediate=4,experts=4,top_k=2", "hidden"},
      {"synthetic:hidden=16777217,intermediate=4,experts=4,top_k=2", "hidden"},
      {"synthetic:hidden=8,intermediate=4x,experts=4,top_k=2", "intermediate"},
      {"synthetic:hidden=8,intermediate=4,experts=4,top_k=5", "top_k"},
      {"synthetic:hidden=1048576,intermediate=1025,experts=4,top_k=2", "intermediate"},
  };
  for (const auto& [text, key] : cases) {
    const absl::Status status = ParseSyntheticModel(text).status();
    EXPECT_THAT(status, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig)) << text;
    EXPECT_EQ(MetadataOf(status)["key"], key) << text;
  }
  EXPECT_THAT(ParseSyntheticModel("/models/m"),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST(SyntheticModelTest, ConfigGivesShapeAndLayers) {
  const ModelConfig config = ConfigOf(kModel);

  EXPECT_EQ(ShapeOf(config), kModel.shape);
  EXPECT_EQ(MoeLayersOf(config), (std::vector<LayerId>{LayerId{0}, LayerId{1}}));
  EXPECT_EQ(config.dtype, "bfloat16");
}

// Worker and coordinator may run on different machines: the bytes are fixed for good.
TEST(SyntheticModelTest, WeightsAreTheSameBytesEverywhere) {
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest, BuildManifest(kModel));

  EXPECT_EQ(manifest.Hash().ToHex(),
            "65eeb03cea00f82e0da92f2c16e0d1b64b74b0c39f3650df39287e7ba6daaeff");
}

TEST(SyntheticModelTest, EveryTensorOfEveryModelIsAnother) {
  std::set<Sha256Digest> seen;
  std::size_t tensors = 0;
  for (const std::uint64_t seed : {0U, 1U, 2U, 7U}) {
    SyntheticModel model = kModel;
    model.seed = seed;
    SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest, BuildManifest(model));
    for (const TensorHash& row : manifest.tensors) seen.insert(row.sha256);
    tensors += manifest.tensors.size();
  }

  EXPECT_EQ(tensors, 4U * 2U * 6U * 3U);
  EXPECT_EQ(seen.size(), tensors);
}

TEST(SyntheticModelTest, ValuesHaveTheSpreadOfTheirFanIn) {
  SyntheticModel model = kModel;
  model.shape.hidden = 512;
  model.shape.intermediate = 128;
  SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights weights,
                          GenerateExpert(model, LayerId{1}, ExpertId{4}));

  for (const Projection projection : kAllProjections) {
    const double fan_in = projection == Projection::kDown ? 128 : 512;
    const double limit = std::sqrt(3 / fan_in) * (1 + 0x1p-8);  // BF16 keeps 8 bits
    double sum = 0;
    double squares = 0;
    for (const Bf16 bits : weights.of(projection)) {
      const double value = Bf16ToFloat(bits);
      ASSERT_TRUE(value != 0 && std::abs(value) <= limit) << value;
      sum += value;
      squares += value * value;
    }
    // 65,536 values: the mean is within 5 sigma of 0, the variance within 2 % of 1 / fan-in.
    EXPECT_LT(std::abs(sum / 65'536), 5 / std::sqrt(fan_in * 65'536));
    EXPECT_NEAR(squares / 65'536 * fan_in, 1, 0.02);
  }
}

TEST(SyntheticModelTest, ManifestIsThatOfTheWeightsAndReportsProgress) {
  std::uint64_t last = 0;
  std::uint64_t total_seen = 0;
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest,
                          BuildManifest(kModel, [&](std::uint64_t done, std::uint64_t total) {
                            EXPECT_GT(done, last);
                            last = done;
                            total_seen = total;
                            return true;
                          }));

  EXPECT_EQ(last, 2U * 6U * 3U * 96U * 40U * 2U);
  EXPECT_EQ(last, total_seen);
  SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights weights,
                          GenerateExpert(kModel, LayerId{1}, ExpertId{5}));
  SY_EXPECT_OK(VerifyExpert(ConfigOf(kModel), LayerId{1}, ExpertId{5}, weights, manifest.tensors));
}

TEST(SyntheticModelTest, HashingStopsOnRequest) {
  EXPECT_EQ(
      BuildManifest(kModel, [](std::uint64_t, std::uint64_t) { return false; }).status().code(),
      absl::StatusCode::kCancelled);
}

TEST(SyntheticModelTest, RefusesIdsThatTheModelDoesNotHave) {
  EXPECT_THAT(GenerateExpert(kModel, LayerId{2}, ExpertId{0}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kUnknownLayer));
  EXPECT_THAT(GenerateExpert(kModel, LayerId{0}, ExpertId{6}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
}

}  // namespace
}  // namespace switchyard
