#include "coordinator/model_loader.h"

#include "gtest/gtest.h"

#include "model/checkpoint.h"
#include "model/expert_weights.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(ModelLoaderTest, ReadsTheShippedModel) {
  const std::string folder = SY_SHIPPED_MODEL;

  SY_ASSERT_OK_AND_ASSIGN(const ModelFacts facts, LoadModelFacts(folder));

  SY_EXPECT_OK(CheckFacts(facts));
  SY_ASSERT_OK_AND_ASSIGN(const auto checkpoint, Checkpoint::Open(folder));
  EXPECT_EQ(facts.shape, ShapeOf(checkpoint->config()));
  SY_ASSERT_OK_AND_ASSIGN(const ExpertWeights weights,
                          LoadExpert(*checkpoint, facts.layers.back(), ExpertId{5}));
  const TensorHash* row = facts.manifest.Find(facts.layers.back(), ExpertId{5}, Projection::kDown);
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->sha256, Sha256(weights.bytes(Projection::kDown)));
}

TEST(ModelLoaderTest, ReadsASyntheticModel) {
  SY_ASSERT_OK_AND_ASSIGN(
      const ModelFacts facts,
      LoadModelFacts("synthetic:seed=3,hidden=32,intermediate=16,experts=4,top_k=2,layers=2"));

  SY_EXPECT_OK(CheckFacts(facts));
  EXPECT_EQ(facts.shape, (MoeShape{.hidden = 32, .intermediate = 16, .experts = 4, .top_k = 2}));
  EXPECT_EQ(facts.layers.size(), 2U);
}

TEST(ModelLoaderTest, RefusesAFolderWithoutACheckpoint) {
  EXPECT_FALSE(LoadModelFacts("/nonexistent/model").ok());
  EXPECT_EQ(ReasonOf(LoadModelFacts("/nonexistent/model").status()), Reason::kCheckpoint);
}

}  // namespace
}  // namespace switchyard
