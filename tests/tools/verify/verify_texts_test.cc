#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/examples/qwen3_moe/shipped_model.h"
#include "tests/testing/status_matchers.h"
#include "tests/tools/deployment/fake_provider.h"
#include "tools/verify/verify_parts.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;

class CheckTextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(model_, ShippedModel::Load());
    text_ = model_->golden->texts()[0];
    text_.greedy.resize(30);
    provider_ = std::make_unique<FakeProvider>(model_->moe);
  }
  absl::StatusOr<TextResult> Check() {
    return CheckText(
        {.decoder = *model_->decoder, .text = text_, .moe = *provider_, .bounds = bounds_});
  }

  std::unique_ptr<ShippedModel> model_;
  GoldenText text_;
  VerifyBounds bounds_;
  std::unique_ptr<FakeProvider> provider_;
};

TEST_F(CheckTextTest, CountsPositionsWhoseLargestLogitAgrees) {
  text_.logits[2 * 256 + 9] = 1e6F;
  text_.logits[7 * 256 + 9] = 1e6F;

  SY_ASSERT_OK_AND_ASSIGN(const TextResult result, Check());

  EXPECT_EQ(result.name, "p0");
  EXPECT_EQ(result.positions, 10U);
  EXPECT_EQ(result.agreed, 8U);
}

TEST_F(CheckTextTest, ATokenWhoseGoldenLogitIsNearlyTheLargestAgrees) {
  const auto prefer_another_by = [this](std::size_t position, float gap) {
    const std::span<float> row = std::span(text_.logits).subspan(position * 256, 256);
    row[255] = *std::max_element(row.begin(), row.end()) + gap;
  };
  prefer_another_by(3, bounds_.logit_tie / 2);
  prefer_another_by(5, bounds_.logit_tie * 2);

  SY_ASSERT_OK_AND_ASSIGN(const TextResult result, Check());

  EXPECT_EQ(result.positions, 10U);
  EXPECT_EQ(result.agreed, 9U);
  EXPECT_EQ(result.ties, 1U);
}

TEST_F(CheckTextTest, ShowsTheFirstDifferenceOfGreedyTextAndGoesOnWithOurs) {
  const std::vector<std::int32_t> right(text_.greedy.begin() + 10, text_.greedy.end());
  text_.greedy[14] = 7;
  text_.greedy[15] = 7;

  SY_ASSERT_OK_AND_ASSIGN(const TextResult result, Check());

  ASSERT_TRUE(result.greedy.has_value());
  EXPECT_EQ(result.greedy->prompt, text_.ids);
  EXPECT_EQ(result.greedy->ours, right);
  EXPECT_EQ(result.greedy->golden[4], 7);
  ASSERT_TRUE(result.greedy->difference.has_value());
  EXPECT_EQ(result.greedy->difference->position, 14U);
  EXPECT_GT(result.greedy->difference->logit_gap, 1.0) << "byte 7 is far from likely";
}

TEST_F(CheckTextTest, DoesWhatTheTextHasDataFor) {
  GoldenText whole = text_;
  text_.logits.clear();
  SY_ASSERT_OK_AND_ASSIGN(const TextResult greedy_only, Check());
  text_ = whole;
  text_.greedy.clear();
  SY_ASSERT_OK_AND_ASSIGN(const TextResult logits_only, Check());
  text_.greedy = text_.ids;
  SY_ASSERT_OK_AND_ASSIGN(const TextResult no_new_token, Check());

  EXPECT_EQ(greedy_only.positions, 0U);
  EXPECT_TRUE(greedy_only.greedy.has_value());
  EXPECT_EQ(logits_only.positions, 10U);
  EXPECT_FALSE(logits_only.greedy.has_value());
  EXPECT_FALSE(no_new_token.greedy.has_value());
}

TEST_F(CheckTextTest, ARefusalIsInTheResultAndAbsenceIsAnError) {
  const auto failing = [](absl::StatusCode code) {
    return [code](const MoeCall&) { return MakeError(code, Reason::kWorkerLost, "no"); };
  };
  provider_ = std::make_unique<FakeProvider>(model_->moe, failing(absl::StatusCode::kDataLoss));
  SY_ASSERT_OK_AND_ASSIGN(const TextResult refused, Check());
  provider_ = std::make_unique<FakeProvider>(model_->moe, failing(absl::StatusCode::kUnavailable));
  const auto absent = Check();

  EXPECT_THAT(refused.refused, FailsWith(absl::StatusCode::kDataLoss, Reason::kWorkerLost));
  EXPECT_EQ(refused.agreed, 10U) << "what came before the refusal stays";
  EXPECT_THAT(absent, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

}  // namespace
}  // namespace switchyard::qwen3_moe
