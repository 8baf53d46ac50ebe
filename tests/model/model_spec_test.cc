#include "model/model_spec.h"

#include "gtest/gtest.h"

#include "tests/model/checkpoint_folder.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::TempDir;

constexpr char kSynthetic[] = "synthetic:seed=3,hidden=8,intermediate=4,experts=4,top_k=2,layers=2";

TEST(ModelSpecTest, TellsFoldersFromSyntheticModels) {
  SY_ASSERT_OK_AND_ASSIGN(const ModelSpec folder, ParseModelSpec("./synthetic:not"));
  SY_ASSERT_OK_AND_ASSIGN(const ModelSpec synthetic, ParseModelSpec(kSynthetic));

  EXPECT_EQ(folder, ModelSpec(CheckpointFolder{"./synthetic:not"}));
  ASSERT_TRUE(std::holds_alternative<SyntheticModel>(synthetic));
  EXPECT_EQ(ToString(std::get<SyntheticModel>(synthetic)), kSynthetic);
}

TEST(ModelSpecTest, RefusesAnEmptyTextAndABadSyntheticModel) {
  EXPECT_THAT(ParseModelSpec(""),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(ParseModelSpec("synthetic:hidden=8"),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST(ModelSpecTest, GivesConfigAndManifestOfASyntheticModel) {
  SY_ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(kSynthetic));

  SY_ASSERT_OK_AND_ASSIGN(const ModelConfig config, ReadModelConfig(spec));
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest, BuildManifest(spec));

  EXPECT_EQ(ShapeOf(config), (MoeShape{.hidden = 8, .intermediate = 4, .experts = 4, .top_k = 2}));
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest direct,
                          BuildManifest(std::get<SyntheticModel>(spec)));
  EXPECT_EQ(manifest, direct);
}

TEST(ModelSpecTest, GivesConfigAndManifestOfACheckpoint) {
  const TempDir dir;
  testing::WriteSmallCheckpoint(dir, testing::SmallExperts(61));
  SY_ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec(dir.path()));

  SY_ASSERT_OK_AND_ASSIGN(const ModelConfig config, ReadModelConfig(spec));
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest manifest, BuildManifest(spec));

  EXPECT_EQ(config.experts, 3);
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(dir.path()));
  SY_ASSERT_OK_AND_ASSIGN(const WeightManifest direct, BuildManifest(*checkpoint));
  EXPECT_EQ(manifest, direct);
}

TEST(ModelSpecTest, AFolderThatIsNotThereIsNotFound) {
  SY_ASSERT_OK_AND_ASSIGN(const ModelSpec spec, ParseModelSpec("/no/such/folder"));

  EXPECT_THAT(ReadModelConfig(spec), FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  EXPECT_THAT(BuildManifest(spec), FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
}

}  // namespace
}  // namespace switchyard
