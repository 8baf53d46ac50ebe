// One suite over every WeightSource of the registry: what the seam promises.
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "model/model_spec.h"
#include "tests/testing/status_matchers.h"
#include "worker/weights/weight_source_registry.h"

namespace switchyard {
namespace {

using ::switchyard::testing::FailsWith;

// A checkpoint text for each row of the registry, all with at least two layers and four experts.
struct SourceCase {
  const char* name;
  const char* checkpoint;
  const char* describe;
};

constexpr SourceCase kCases[] = {
    {"safetensors", SY_SHIPPED_MODEL, "checkpoint " SY_SHIPPED_MODEL},
    {"synthetic", "synthetic:seed=11,hidden=96,intermediate=40,experts=6,top_k=3,layers=2",
     "synthetic:seed=11,hidden=96,intermediate=40,experts=6,top_k=3,layers=2"},
};

class WeightSourceTest : public ::testing::TestWithParam<SourceCase> {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(GetParam().checkpoint));
    SY_ASSERT_OK_AND_ASSIGN(config_, ReadModelConfig(spec));
    SY_ASSERT_OK_AND_ASSIGN(manifest_, BuildManifest(spec));
  }

  [[nodiscard]] absl::StatusOr<std::unique_ptr<WeightSource>> Make(
      std::vector<TensorHash> expected) const {
    return MakeWeightSource(GetParam().checkpoint, {.expected = std::move(expected)});
  }

  ModelConfig config_;
  WeightManifest manifest_;
};

INSTANTIATE_TEST_SUITE_P(Registry, WeightSourceTest, ::testing::ValuesIn(kCases),
                         [](const auto& param_info) { return param_info.param.name; });

TEST(WeightSourceRegistryTest, EveryRowIsUnderTheSuite) {
  std::vector<std::string> names;
  for (const SourceCase& source : kCases) names.emplace_back(source.name);

  EXPECT_EQ(WeightSourceNames(), names);
}

TEST(WeightSourceRegistryTest, RefusesTextsThatNameNoModel) {
  EXPECT_THAT(MakeWeightSource("", {}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(MakeWeightSource("synthetic:hidden=8", {}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(MakeWeightSource("/no/such/folder", {}),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
}

TEST_P(WeightSourceTest, LoadsEveryExpertOfTheManifestInItsShape) {
  SY_ASSERT_OK_AND_ASSIGN(const auto source, Make(manifest_.tensors));

  EXPECT_EQ(source->shape(), ShapeOf(config_));
  EXPECT_EQ(source->describe(), GetParam().describe);
  const auto elements = static_cast<std::size_t>(config_.hidden_size) *
                        static_cast<std::size_t>(config_.moe_intermediate);
  for (const LayerId layer : MoeLayersOf(config_)) {
    for (std::int32_t expert = 0; expert < config_.experts; ++expert) {
      SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights weights, source->Load(layer, ExpertId{expert}));
      for (const Projection projection : kAllProjections) {
        EXPECT_EQ(weights.of(projection).size(), elements);
      }
      SY_EXPECT_OK(VerifyExpert(config_, layer, ExpertId{expert}, weights, manifest_.tensors));
    }
  }
}

TEST_P(WeightSourceTest, RefusesWeightsThatAreNotThoseOfTheManifest) {
  std::vector<TensorHash> expected = manifest_.tensors;
  for (TensorHash& row : expected) {
    const bool chosen =
        row.layer == LayerId{1} && row.expert == ExpertId{2} && row.projection == Projection::kDown;
    if (chosen) row.sha256.bytes[31] ^= 1U;
  }
  const TensorHash* right = manifest_.Find(LayerId{1}, ExpertId{2}, Projection::kDown);
  ASSERT_NE(right, nullptr);
  SY_ASSERT_OK_AND_ASSIGN(const auto source, Make(expected));

  const absl::Status status = source->Load(LayerId{1}, ExpertId{2}).status();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kDataLoss, Reason::kWeightHash));
  EXPECT_EQ(MetadataOf(status).at("tensor"),
            ExpertTensorName(config_, LayerId{1}, ExpertId{2}, Projection::kDown));
  EXPECT_EQ(MetadataOf(status).at("found"), right->sha256.ToHex());
  EXPECT_NE(MetadataOf(status).at("expected"), right->sha256.ToHex());
  SY_EXPECT_OK(source->Load(LayerId{1}, ExpertId{1}));
  SY_EXPECT_OK(source->Load(LayerId{0}, ExpertId{2}));
}

TEST_P(WeightSourceTest, RefusesAnExpertWithoutHashes) {
  SY_ASSERT_OK_AND_ASSIGN(const auto source, Make({}));

  EXPECT_THAT(source->Load(LayerId{0}, ExpertId{0}),
              FailsWith(absl::StatusCode::kDataLoss, Reason::kWeightHash));
}

TEST_P(WeightSourceTest, RefusesIdsThatTheModelDoesNotHave) {
  SY_ASSERT_OK_AND_ASSIGN(const auto source, Make(manifest_.tensors));

  EXPECT_THAT(source->Load(LayerId{config_.layers}, ExpertId{0}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kUnknownLayer));
  EXPECT_THAT(source->Load(LayerId{-1}, ExpertId{0}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kUnknownLayer));
  EXPECT_THAT(source->Load(LayerId{0}, ExpertId{config_.experts}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
  EXPECT_THAT(source->Load(LayerId{0}, ExpertId{-1}),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
}

TEST_P(WeightSourceTest, GivesTheSameWeightsToThreadsSideBySide) {
  SY_ASSERT_OK_AND_ASSIGN(const auto source, Make(manifest_.tensors));
  constexpr int kThreads = 4;
  std::vector<ExpertWeights> loaded(kThreads);

  std::vector<std::thread> threads;
  for (ExpertWeights& slot : loaded) {
    threads.emplace_back([&source, &slot] {
      for (std::int32_t expert = 0; expert < 4; ++expert) {
        auto weights = source->Load(LayerId{1}, ExpertId{expert});
        if (weights.ok()) slot = *std::move(weights);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();

  SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights alone, source->Load(LayerId{1}, ExpertId{3}));
  for (const ExpertWeights& weights : loaded) EXPECT_EQ(weights, alone);
}

}  // namespace
}  // namespace switchyard
