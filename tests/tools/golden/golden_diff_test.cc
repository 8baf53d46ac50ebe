#include "tools/golden/golden_diff.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/format/calc_diff.h"
#include "tests/examples/qwen3_moe/shipped_model.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "tests/tools/golden/golden_builder.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;

MoePath PathOf(MoeFn run) { return {.run = std::move(run), .max_tokens = 300}; }

TEST(GoldenDiffTest, TheShippedModelIsAtItsGoldens) {
  SY_ASSERT_OK_AND_ASSIGN(const auto model, ShippedModel::Load());

  SY_ASSERT_OK_AND_ASSIGN(const GoldenDiff diff,
                          MeasureGoldenDiff(*model->decoder, *model->golden, PathOf(model->moe)));

  EXPECT_GT(diff.positions, 0U);
  EXPECT_LE(diff.logits, 1e-4);
  ASSERT_EQ(diff.layers.size(), 4U);
  for (std::size_t layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(diff.layers[layer].layer.value, static_cast<std::int32_t>(layer));
    EXPECT_GT(diff.layers[layer].rows, 0U);
    EXPECT_LE(diff.layers[layer].diff, 1.5e-5);
  }
}

// y scaled by 1.5 is calc_diff 1 - 2 * 1.5 / (1 + 2.25) away from y, whatever y is.
TEST(GoldenDiffTest, AnErrorShowsInItsLayerAndInTheLogits) {
  SY_ASSERT_OK_AND_ASSIGN(const auto model, ShippedModel::Load());
  const MoeFn spoilt = [&model](const MoeCall& call) {
    SY_RETURN_IF_ERROR(model->moe(call));
    if (call.layer != LayerId{2}) return absl::OkStatus();
    for (float& y : call.y) y *= 1.5F;
    return absl::OkStatus();
  };

  SY_ASSERT_OK_AND_ASSIGN(const GoldenDiff diff,
                          MeasureGoldenDiff(*model->decoder, *model->golden, PathOf(spoilt)));

  EXPECT_GT(diff.logits, 1e-3);
  EXPECT_NEAR(diff.layers[2].diff, 1 - 3.0 / 3.25, 1e-3);
  EXPECT_LE(diff.layers[1].diff, 1.5e-5);
  EXPECT_LE(diff.layers[3].diff, 1.5e-5);
}

TEST(GoldenDiffTest, BlocksOfALayerArePooled) {
  SY_ASSERT_OK_AND_ASSIGN(const auto model, ShippedModel::Load());
  SeededRng rng(95);
  const std::vector<float> in = testing::GaussianFloats(3 * 256, 1.0, rng);
  const std::vector<float> out = testing::GaussianFloats(3 * 256, 1.0, rng);
  const testing::TempDir dir;
  const std::string path = GoldenBuilder()
                               .Floats("a.l1.moe_in", 3, in)
                               .Floats("a.l1.moe_out", 3, out)
                               .Floats("b.l1.moe_in", 3, out)
                               .Floats("b.l1.moe_out", 3, in)
                               .Write(dir);
  SY_ASSERT_OK_AND_ASSIGN(const auto golden,
                          GoldenFile::Open(path, GoldenShapeOf(model->decoder->dims())));
  DiffSums wanted;
  const MoeFn constant = [](const MoeCall& call) {
    for (std::size_t i = 0; i < call.y.size(); ++i) call.y[i] = static_cast<float>(i % 7) - 3;
    return absl::OkStatus();
  };
  std::vector<float> y(3 * 256);
  MoeCall call;
  call.tokens = 3;
  call.y = y;
  SY_ASSERT_OK(constant(call));
  wanted.Add(y, out);
  wanted.Add(y, in);

  SY_ASSERT_OK_AND_ASSIGN(const GoldenDiff diff,
                          MeasureGoldenDiff(*model->decoder, *golden, PathOf(constant)));

  EXPECT_EQ(diff.positions, 0U);
  ASSERT_EQ(diff.layers.size(), 1U);
  EXPECT_EQ(diff.layers[0].rows, 6U);
  EXPECT_DOUBLE_EQ(diff.layers[0].diff, wanted.Diff());
}

TEST(GoldenDiffTest, AFileWithNeitherLogitsNorBlocksIsRefused) {
  SY_ASSERT_OK_AND_ASSIGN(const auto model, ShippedModel::Load());
  const testing::TempDir dir;
  const std::string path =
      GoldenBuilder().Ids("a.ids", {1, 2}).Ids("a.greedy", {1, 2, 3}).Write(dir);
  SY_ASSERT_OK_AND_ASSIGN(const auto golden,
                          GoldenFile::Open(path, GoldenShapeOf(model->decoder->dims())));

  EXPECT_THAT(MeasureGoldenDiff(*model->decoder, *golden, PathOf(model->moe)),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
