#include "model/routing/router.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::FloatNear;
using testing::GaussianFloats;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The outputs, poisoned so that elements that are not written show.
struct Answer {
  Answer(std::size_t tokens, std::int32_t top_k)
      : ids(tokens * static_cast<std::size_t>(top_k), -77),
        weights(tokens * static_cast<std::size_t>(top_k), -77.0F) {}
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
};

// A row of the reference: ids best first, weights in double.
struct Reference {
  std::vector<std::int64_t> ids;
  std::vector<double> weights;
};

// The k largest, lower ids first among equals; only those that `may` be chosen.
std::vector<std::int64_t> LargestOf(const std::vector<double>& scores, std::int32_t k,
                                    const std::vector<bool>& may) {
  std::vector<std::int64_t> order;
  for (std::size_t e = 0; e < scores.size(); ++e) {
    if (may[e]) order.push_back(static_cast<std::int64_t>(e));
  }
  std::stable_sort(order.begin(), order.end(), [&scores](std::int64_t a, std::int64_t b) {
    return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
  });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

Reference SoftmaxReference(const SoftmaxRule& rule, std::span<const float> logits) {
  std::vector<double> p(logits.begin(), logits.end());
  const double largest = *std::max_element(p.begin(), p.end());
  double all = 0;
  for (double& value : p) {
    value = std::exp(value - largest);
    all += value;
  }
  for (double& value : p) value /= all;
  const std::vector<double> scores(logits.begin(), logits.end());
  Reference row{LargestOf(scores, rule.top_k, std::vector<bool>(p.size(), true)), {}};
  double sum = 0;
  for (const std::int64_t id : row.ids) sum += p[static_cast<std::size_t>(id)];
  for (const std::int64_t id : row.ids) {
    row.weights.push_back(p[static_cast<std::size_t>(id)] / (rule.renormalize ? sum : 1));
  }
  return row;
}

Reference SigmoidReference(const SigmoidRule& rule, std::span<const float> bias,
                           std::span<const float> logits) {
  const std::size_t size = logits.size() / static_cast<std::size_t>(rule.groups);
  std::vector<double> s;
  std::vector<double> c;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    s.push_back(1 / (1 + std::exp(-static_cast<double>(logits[e]))));
    c.push_back(s[e] + (bias.empty() ? 0 : static_cast<double>(bias[e])));
  }
  std::vector<double> groups;
  for (std::size_t g = 0; g < c.size(); g += size) {
    std::vector<double> members(c.begin() + static_cast<std::ptrdiff_t>(g),
                                c.begin() + static_cast<std::ptrdiff_t>(g + size));
    std::sort(members.rbegin(), members.rend());
    groups.push_back(members[0] + (size > 1 ? members[1] : 0));
  }
  std::vector<bool> may(c.size(), false);
  for (const std::int64_t g :
       LargestOf(groups, rule.topk_groups, std::vector<bool>(groups.size(), true))) {
    for (std::size_t i = 0; i < size; ++i) may[static_cast<std::size_t>(g) * size + i] = true;
  }
  Reference row{LargestOf(c, rule.top_k, may), {}};
  double sum = 0;
  for (const std::int64_t id : row.ids) sum += s[static_cast<std::size_t>(id)];
  const double factor =
      rule.place == ScalingPlace::kWeights ? static_cast<double>(rule.scaling) : 1;
  for (const std::int64_t id : row.ids) {
    row.weights.push_back(s[static_cast<std::size_t>(id)] / (rule.renormalize ? sum : 1) * factor);
  }
  return row;
}

void ExpectRow(const Answer& answer, std::size_t row, const Reference& want, double tolerance) {
  for (std::size_t k = 0; k < want.ids.size(); ++k) {
    const std::size_t at = row * want.ids.size() + k;
    EXPECT_EQ(answer.ids[at], want.ids[k]) << "row " << row << ", place " << k;
    EXPECT_NEAR(answer.weights[at], want.weights[k], tolerance) << "row " << row << ", place " << k;
  }
}

// R109
TEST(SoftmaxRouterTest, EqualsTheReferenceOnRandomBatches) {
  const std::vector<SoftmaxRule> rules{{1, 1, true},    {7, 7, true},     {128, 8, true},
                                       {512, 10, true}, {512, 10, false}, {1024, 32, false}};
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    for (const SoftmaxRule& rule : rules) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", experts " << rule.experts);
      SeededRng rng(seed);
      const auto experts = static_cast<std::size_t>(rule.experts);
      constexpr std::size_t kTokens = 9;
      const std::vector<float> logits = GaussianFloats(kTokens * experts, 3.0, rng);
      Answer answer(kTokens, rule.top_k);

      SY_ASSERT_OK(RouteSoftmax(rule, {logits, answer.ids, answer.weights}));

      for (std::size_t t = 0; t < kTokens; ++t) {
        const auto row = std::span(logits).subspan(t * experts, experts);
        ExpectRow(answer, t, SoftmaxReference(rule, row), 2e-6);
      }
    }
  }
}

// R109: renormalized weights sum to 1, and rows of padding get -1.
TEST(SoftmaxRouterTest, WeightsSumToOneAndPaddingHasNoExperts) {
  const SoftmaxRule rule{.experts = 512, .top_k = 10};
  constexpr std::size_t kTokens = 40;
  constexpr std::size_t kValid = 33;
  SeededRng rng(5);
  std::vector<float> logits = GaussianFloats(kTokens * 512, 4.0, rng);
  std::fill(logits.begin() + kValid * 512, logits.end(), kNan);  // never read
  Answer answer(kTokens, rule.top_k);

  SY_ASSERT_OK(RouteSoftmax(rule, {logits, answer.ids, answer.weights, kValid}));

  for (std::size_t t = 0; t < kTokens; ++t) {
    const auto weights = std::span(answer.weights).subspan(t * 10, 10);
    const auto ids = std::span(answer.ids).subspan(t * 10, 10);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    EXPECT_NEAR(sum, t < kValid ? 1 : 0, 1e-6);
    for (const std::int64_t id : ids) EXPECT_EQ(id == -1, t >= kValid);
    const std::set<std::int64_t> distinct(ids.begin(), ids.end());
    EXPECT_EQ(distinct.size(), t < kValid ? 10U : 1U);
  }
}

TEST(SoftmaxRouterTest, TiesMinusInfinityAndNanAreAsDocumented) {
  const std::vector<float> logits{1, 2,     2,     1,      //
                                  0, -kInf, -kInf, -kInf,  //
                                  5, kNan,  5,     kNan};
  Answer answer(3, 3);

  SY_ASSERT_OK(RouteSoftmax({.experts = 4, .top_k = 3}, {logits, answer.ids, answer.weights}));

  EXPECT_THAT(answer.ids, ElementsAre(1, 2, 0, 0, 1, 2, 0, 2, 1));
  EXPECT_EQ(answer.weights[0], answer.weights[1]);
  EXPECT_THAT(std::span(answer.weights).subspan(3, 3), ElementsAre(1.0F, 0.0F, 0.0F));
  EXPECT_TRUE(std::isnan(answer.weights[8]));
}

// R108
TEST(SigmoidRouterTest, EqualsTheReferenceOnDataWithoutTies) {
  const std::vector<SigmoidRule> rules{
      {256, 8, 8, 4, true, 2.5F, ScalingPlace::kWeights},    // DeepSeek-V3
      {256, 8, 8, 4, true, 2.5F, ScalingPlace::kOutput},     //
      {384, 8, 1, 1, true, 2.827F, ScalingPlace::kWeights},  // Kimi K2
      {512, 10, 16, 3, false, 1.0F, ScalingPlace::kWeights},
      {16, 4, 16, 4, true, 1.0F, ScalingPlace::kWeights},  // groups of one
      {12, 12, 3, 3, true, 1.0F, ScalingPlace::kWeights}};
  for (std::uint64_t seed = 1; seed <= 4; ++seed) {
    for (const SigmoidRule& rule : rules) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed << ", experts " << rule.experts);
      SeededRng rng(seed);
      const auto experts = static_cast<std::size_t>(rule.experts);
      constexpr std::size_t kTokens = 7;
      const std::vector<float> logits = GaussianFloats(kTokens * experts, 1.0, rng);
      const std::vector<float> bias = GaussianFloats(experts, 0.3, rng);
      for (const std::span<const float> used : {std::span<const float>(bias), {}}) {
        Answer answer(kTokens, rule.top_k);

        SY_ASSERT_OK(RouteSigmoid(rule, used, {logits, answer.ids, answer.weights}));

        for (std::size_t t = 0; t < kTokens; ++t) {
          const auto row = std::span(logits).subspan(t * experts, experts);
          ExpectRow(answer, t, SigmoidReference(rule, used, row), 3e-6);
        }
      }
    }
  }
}

// R108: the bias brings an expert in; its weight comes only from its logit.
TEST(SigmoidRouterTest, TheBiasChoosesAndDoesNotWeigh) {
  const std::vector<float> logits{2, 1, 0, -1};
  const std::vector<float> bias{0, 0, 0, 10};
  const SigmoidRule rule{.experts = 4, .top_k = 2, .renormalize = false};
  Answer answer(1, 2);

  SY_ASSERT_OK(RouteSigmoid(rule, bias, {logits, answer.ids, answer.weights}));

  EXPECT_THAT(answer.ids, ElementsAre(3, 0));
  EXPECT_THAT(answer.weights,
              ElementsAre(FloatNear(0.268941F, 1e-6F), FloatNear(0.880797F, 1e-6F)));
}

// R108: the sum of two decides between groups, not the largest of one.
TEST(SigmoidRouterTest, GroupsCompeteByTheirTwoBest) {
  const std::vector<float> logits{3, -9, -9, 1, 1, -9};
  const SigmoidRule rule{.experts = 6, .top_k = 2, .groups = 2, .topk_groups = 1};
  Answer answer(1, 2);

  SY_ASSERT_OK(RouteSigmoid(rule, {}, {logits, answer.ids, answer.weights}));

  EXPECT_THAT(answer.ids, ElementsAre(3, 4));
}

// R108: the factor is in the weights or left to the output, once.
TEST(SigmoidRouterTest, TheScalingFactorIsAppliedInOnePlace) {
  SeededRng rng(11);
  const std::vector<float> logits = GaussianFloats(256, 1.0, rng);
  SigmoidRule rule{.experts = 256, .top_k = 8, .groups = 8, .topk_groups = 4, .scaling = 2.5F};
  for (const ScalingPlace place : {ScalingPlace::kWeights, ScalingPlace::kOutput}) {
    rule.place = place;
    Answer answer(1, 8);

    SY_ASSERT_OK(RouteSigmoid(rule, {}, {logits, answer.ids, answer.weights}));

    const double sum = std::accumulate(answer.weights.begin(), answer.weights.end(), 0.0);
    EXPECT_NEAR(sum * static_cast<double>(OutputScaling(rule)), 2.5, 1e-5);
    EXPECT_NEAR(sum, place == ScalingPlace::kWeights ? 2.5 : 1.0, 1e-5);
  }
}

TEST(SigmoidRouterTest, EqualGroupsAndExpertsGoToTheLowerNumber) {
  const std::vector<float> logits(8, 0.5F);
  const SigmoidRule rule{.experts = 8, .top_k = 3, .groups = 4, .topk_groups = 2};
  Answer answer(1, 3);

  SY_ASSERT_OK(RouteSigmoid(rule, {}, {logits, answer.ids, answer.weights}));

  EXPECT_THAT(answer.ids, ElementsAre(0, 1, 2));
}

TEST(SigmoidRouterTest, WeightsThatAreAllZeroStayZeroAndIdsStayInTheirGroups) {
  const std::vector<float> logits{-kInf, -kInf, -kInf, -kInf, kNan, kNan, kNan, kNan};
  const SigmoidRule rule{.experts = 8, .top_k = 4, .groups = 2, .topk_groups = 1};
  Answer answer(1, 4);

  SY_ASSERT_OK(RouteSigmoid(rule, {}, {logits, answer.ids, answer.weights}));

  EXPECT_THAT(answer.ids, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(answer.weights, ElementsAre(0.0F, 0.0F, 0.0F, 0.0F));
}

TEST(SigmoidRouterTest, PaddingIsNotRead) {
  const SigmoidRule rule{.experts = 4, .top_k = 2};
  std::vector<float> logits(8, kNan);
  std::fill(logits.begin(), logits.begin() + 4, 1.0F);
  Answer answer(2, 2);

  SY_ASSERT_OK(RouteSigmoid(rule, {}, {logits, answer.ids, answer.weights, 1}));

  EXPECT_THAT(answer.ids, ElementsAre(0, 1, -1, -1));
  EXPECT_THAT(answer.weights, ElementsAre(0.5F, 0.5F, 0.0F, 0.0F));
}

TEST(RouterTest, NoTokensAreNoError) {
  SY_EXPECT_OK(RouteSoftmax({.experts = 512, .top_k = 10}, {}));
  SY_EXPECT_OK(RouteSigmoid({.experts = 256, .top_k = 8}, {}, {}));
}

// A row depends only on itself: batches of one give the same bits.
TEST(RouterTest, RowsDoNotDependOnTheirCompany) {
  const SoftmaxRule softmax{.experts = 96, .top_k = 6};
  const SigmoidRule sigmoid{.experts = 96, .top_k = 6, .groups = 8, .topk_groups = 3};
  constexpr std::size_t kTokens = 17;
  SeededRng rng(21);
  const std::vector<float> logits = GaussianFloats(kTokens * 96, 2.0, rng);
  const std::vector<float> bias = GaussianFloats(96, 0.2, rng);
  for (const bool grouped : {false, true}) {
    const auto route = [&](std::span<const float> rows, Answer& answer) {
      const RoutingBatch batch{rows, answer.ids, answer.weights};
      return grouped ? RouteSigmoid(sigmoid, bias, batch) : RouteSoftmax(softmax, batch);
    };
    Answer together(kTokens, 6);
    SY_ASSERT_OK(route(logits, together));
    for (std::size_t t = 0; t < kTokens; ++t) {
      Answer alone(1, 6);
      SY_ASSERT_OK(route(std::span(logits).subspan(t * 96, 96), alone));
      for (std::size_t k = 0; k < 6; ++k) {
        EXPECT_EQ(alone.ids[k], together.ids[t * 6 + k]);
        EXPECT_EQ(alone.weights[k], together.weights[t * 6 + k]);
      }
    }
  }
}

TEST(RouterTest, AllocatesNothing) {
  SeededRng rng(1);
  const std::vector<float> logits = GaussianFloats(64 * 256, 1.0, rng);
  Answer answer(64, 8);
  const RoutingBatch batch{logits, answer.ids, answer.weights};

  const std::uint64_t before = testing::AllocationsOfThisThread();
  const bool softmax = RouteSoftmax({.experts = 256, .top_k = 8}, batch).ok();
  const bool sigmoid =
      RouteSigmoid({.experts = 256, .top_k = 8, .groups = 8, .topk_groups = 4}, {}, batch).ok();
  const std::uint64_t after = testing::AllocationsOfThisThread();

  EXPECT_TRUE(softmax && sigmoid);
  EXPECT_EQ(after, before);
}

TEST(RouterTest, RefusesNumbersThatDoNotFitAndWritesNothing) {
  const std::vector<float> logits(24, 1.0F);
  const std::vector<float> bias(5, 0.0F);
  Answer answer(2, 3);
  const RoutingBatch good{logits, answer.ids, answer.weights};
  const auto shape = FailsWith(StatusCode::kInvalidArgument, Reason::kBadShape);
  const auto top_k = FailsWith(StatusCode::kInvalidArgument, Reason::kBadTopK);

  EXPECT_THAT(RouteSoftmax({.experts = 12, .top_k = 0}, good), top_k);
  EXPECT_THAT(RouteSoftmax({.experts = 12, .top_k = 13}, good), top_k);
  EXPECT_THAT(RouteSoftmax({.experts = 0, .top_k = 3}, good), shape);
  EXPECT_THAT(RouteSoftmax({.experts = 1025, .top_k = 3}, good), shape);
  EXPECT_THAT(RouteSoftmax({.experts = 7, .top_k = 3}, good), shape);
  EXPECT_THAT(RouteSoftmax({.experts = 6, .top_k = 3}, good), shape);
  for (const std::int64_t valid : {-1, 3}) {
    EXPECT_THAT(
        RouteSoftmax({.experts = 12, .top_k = 3}, {logits, answer.ids, answer.weights, valid}),
        shape);
  }
  SigmoidRule rule{.experts = 12, .top_k = 3, .groups = 4, .topk_groups = 1};
  SY_EXPECT_OK(RouteSigmoid({.experts = 12, .top_k = 3}, {}, {logits, answer.ids, answer.weights}));
  answer = Answer(2, 3);
  rule.top_k = 4;
  EXPECT_THAT(RouteSigmoid(rule, {}, good), top_k) << "a group has 3";
  rule.top_k = 3;
  EXPECT_THAT(RouteSigmoid(rule, bias, good), shape);
  for (const std::int32_t groups : {0, -1, 5}) {
    EXPECT_THAT(RouteSigmoid({.experts = 12, .top_k = 3, .groups = groups}, {}, good), shape);
  }
  for (const std::int32_t kept : {0, 5}) {
    rule.topk_groups = kept;
    EXPECT_THAT(RouteSigmoid(rule, {}, good), shape);
  }
  rule.topk_groups = 2;
  for (const float scaling : {0.0F, -1.0F, kInf, kNan}) {
    rule.scaling = scaling;
    EXPECT_THAT(RouteSigmoid(rule, {}, good), shape) << scaling;
  }
  EXPECT_THAT(answer.ids, ::testing::Each(-77));
}

}  // namespace
}  // namespace switchyard
