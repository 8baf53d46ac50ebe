#include "coordinator/checkpoints/model_loader.h"

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

TEST(ModelLoaderTest, SaysHowFarItIsAndStopsWhenTold) {
  for (const std::string& checkpoint :
       {std::string(SY_SHIPPED_MODEL),
        std::string("synthetic:seed=3,hidden=32,intermediate=16,experts=4,top_k=2,layers=2")}) {
    std::uint64_t last = 0;
    std::uint64_t of = 0;
    SY_ASSERT_OK(LoadModelFacts(checkpoint, [&](std::uint64_t done, std::uint64_t total) {
      EXPECT_GT(done, last);
      last = done;
      of = total;
      return true;
    }));
    EXPECT_GT(of, 0U) << checkpoint;
    EXPECT_EQ(last, of) << checkpoint;

    const auto stop = [](std::uint64_t, std::uint64_t) { return false; };
    EXPECT_EQ(LoadModelFacts(checkpoint, stop).status().code(), absl::StatusCode::kCancelled);
  }
}

TEST(ModelLoaderTest, RefusesAFolderWithoutACheckpoint) {
  EXPECT_FALSE(LoadModelFacts("/nonexistent/model").ok());
  EXPECT_EQ(ReasonOf(LoadModelFacts("/nonexistent/model").status()), Reason::kCheckpoint);
}

}  // namespace
}  // namespace switchyard
