#include "examples/qwen3_moe/router.h"

#include <cmath>
#include <limits>
#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"

namespace switchyard::qwen3_moe {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

struct Picked {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};

Picked Route(const std::vector<float>& logits, const RouterRule& rule) {
  Picked picked{.ids = std::vector<std::int32_t>(rule.top_k, -7),
                .weights = std::vector<float>(rule.top_k, -7.0F)};
  RouteRow(logits, rule, {.ids = picked.ids, .weights = picked.weights});
  return picked;
}

TEST(RouterTest, TakesTheLargestAndNormalizesTheirProbabilities) {
  const Picked picked =
      Route({0.0F, std::log(3.0F), -1.0F, std::log(5.0F)}, {.top_k = 2, .normalize = true});

  EXPECT_THAT(picked.ids, ElementsAre(3, 1));
  EXPECT_THAT(picked.weights, ElementsAre(FloatNear(5.0F / 8, 1e-6F), FloatNear(3.0F / 8, 1e-6F)));
}

TEST(RouterTest, KeepsProbabilitiesOverAllExpertsWhenNotNormalizing) {
  const Picked picked =
      Route({std::log(1.0F), std::log(2.0F), std::log(7.0F)}, {.top_k = 2, .normalize = false});

  EXPECT_THAT(picked.ids, ElementsAre(2, 1));
  EXPECT_THAT(picked.weights, ElementsAre(FloatNear(0.7F, 1e-6F), FloatNear(0.2F, 1e-6F)));
}

TEST(RouterTest, TiesGoToTheLowerId) {
  EXPECT_THAT(Route({1, 1, 1, 1, 1}, {.top_k = 3, .normalize = true}).ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(Route({0, 2, 1, 2, 1}, {.top_k = 3, .normalize = true}).ids, ElementsAre(1, 3, 2));
}

TEST(RouterTest, SurvivesLogitsThatWouldOverflowExp) {
  const Picked picked = Route({1000, 999, -1000}, {.top_k = 2, .normalize = true});

  EXPECT_THAT(picked.ids, ElementsAre(0, 1));
  EXPECT_THAT(picked.weights,
              ElementsAre(FloatNear(0.731059F, 1e-5F), FloatNear(0.268941F, 1e-5F)));
}

TEST(RouterTest, NanIsNeverPreferredAndIdsStayValid) {
  const float nan = std::numeric_limits<float>::quiet_NaN();

  EXPECT_THAT(Route({nan, 1, 2, nan}, {.top_k = 2, .normalize = true}).ids, ElementsAre(2, 1));
  const Picked all = Route({nan, nan, nan}, {.top_k = 2, .normalize = true});
  EXPECT_THAT(all.ids, ElementsAre(0, 1));
  EXPECT_TRUE(std::isnan(all.weights[0]));
  EXPECT_TRUE(std::isnan(all.weights[1]));
}

TEST(RouterTest, RoutesRandomRowsLikeASortInDouble) {
  constexpr std::size_t kHidden = 40;
  constexpr std::size_t kExperts = 11;
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    SeededRng rng(seed);
    const std::vector<float> gate = testing::GaussianFloats(kExperts * kHidden, 0.3, rng);
    const std::vector<float> x = testing::GaussianFloats(6 * kHidden, 1.0, rng);
    const Router router(PackedMatrix::Pack(gate, kExperts, kHidden),
                        {.top_k = 4, .normalize = true});

    const Routing routing = router.Route(x);

    ASSERT_EQ(routing.top_k, 4U);
    for (std::size_t t = 0; t < 6; ++t) {
      std::vector<std::pair<double, std::size_t>> order;
      for (std::size_t e = 0; e < kExperts; ++e) {
        double logit = 0;
        for (std::size_t i = 0; i < kHidden; ++i) {
          logit +=
              static_cast<double>(gate[e * kHidden + i]) * static_cast<double>(x[t * kHidden + i]);
        }
        EXPECT_NEAR(routing.logits[t * kExperts + e], logit, 1e-5);
        order.emplace_back(-logit, e);
      }
      std::sort(order.begin(), order.end());
      double sum = 0;
      for (std::size_t k = 0; k < 4; ++k) sum += std::exp(-order[k].first);
      for (std::size_t k = 0; k < 4; ++k) {
        EXPECT_EQ(routing.ids[t * 4 + k], static_cast<std::int32_t>(order[k].second));
        EXPECT_NEAR(routing.weights[t * 4 + k], std::exp(-order[k].first) / sum, 1e-5);
      }
    }
  }
}

TEST(RouterTest, WeighingTheChosenGivesTheWeightsOfRouting) {
  SeededRng rng(77);
  const std::vector<float> logits = testing::GaussianFloats(9, 2.0, rng);
  for (const bool normalize : {false, true}) {
    const RouterRule rule{.top_k = 3, .normalize = normalize};
    Picked routed = Route(logits, rule);
    std::vector<float> weights(3, -7.0F);

    WeighRow(logits, rule, {.ids = routed.ids, .weights = weights});

    EXPECT_EQ(weights, routed.weights);
  }
}

TEST(RouterTest, CanPickEveryExpert) {
  const Picked picked = Route({0.1F, 0.3F, 0.2F}, {.top_k = 3, .normalize = false});

  EXPECT_THAT(picked.ids, ElementsAre(1, 2, 0));
  EXPECT_NEAR(picked.weights[0] + picked.weights[1] + picked.weights[2], 1.0, 1e-6);
}

}  // namespace
}  // namespace switchyard::qwen3_moe
