#include "model/routing/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename Id = std::int64_t>
std::vector<Id> Top(const std::vector<float>& scores, std::size_t k) {
  std::vector<Id> ids(k, -7);
  std::vector<std::uint32_t> keys(scores.size(), 12'345);
  TopK(std::span<const float>(scores), std::span(keys), std::span(ids));
  return ids;
}

std::vector<float> Weigh(const std::vector<float>& logits, const std::vector<std::int64_t>& ids,
                         bool renormalize) {
  std::vector<float> weights(ids.size(), -7.0F);
  SoftmaxWeights(logits, std::span<const std::int64_t>(ids), renormalize, weights);
  return weights;
}

TEST(TopKTest, KeysOrderAsScoresDo) {
  const std::vector<float> ascending{-kInf,   -3.0e38F, -1.0F, -1.0e-40F,
                                     0.0F,    1.0e-40F, 1.0F,  std::nextafter(1.0F, 2.0F),
                                     3.0e38F, kInf};
  for (std::size_t i = 1; i < ascending.size(); ++i) {
    EXPECT_LT(OrderKey(ascending[i - 1]), OrderKey(ascending[i])) << ascending[i];
  }
  EXPECT_EQ(OrderKey(-0.0F), OrderKey(0.0F));
  EXPECT_EQ(OrderKey(kNan), OrderKey(-kNan));
  EXPECT_LT(OrderKey(kNan), OrderKey(-kInf));
  EXPECT_GT(OrderKey(kNan), kTakenKey);
}

TEST(TopKTest, KeysOfRandomBitsOrderAsScoresDo) {
  SeededRng rng(3);
  for (int round = 0; round < 20'000; ++round) {
    const auto a = std::bit_cast<float>(static_cast<std::uint32_t>(rng.Next()));
    const auto b = std::bit_cast<float>(static_cast<std::uint32_t>(rng.Next()));
    if (std::isnan(a) || std::isnan(b)) continue;
    EXPECT_EQ(OrderKey(a) < OrderKey(b), a < b) << a << " " << b;
  }
}

TEST(TopKTest, EqualScoresGoToTheLowerId) {
  EXPECT_THAT(Top({1, 1, 1, 1, 1}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(Top({0, 2, 1, 2, 1}, 4), ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(Top({-0.0F, 0.0F}, 2), ElementsAre(0, 1));
  EXPECT_THAT(Top<std::int32_t>({0, 2, 1, 2, 1}, 2), ElementsAre(1, 3));
}

TEST(TopKTest, NanComesLastAndIdsStayDistinct) {
  EXPECT_THAT(Top({kNan, -kInf, 2, kNan, -3}, 5), ElementsAre(2, 4, 1, 0, 3));
  EXPECT_THAT(Top({kNan, kNan, kNan}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(Top({-kInf, -kInf}, 2), ElementsAre(0, 1));
  EXPECT_THAT(Top({1, kInf, kNan}, 1), ElementsAre(1));
}

TEST(TopKTest, EqualsAStableSortOnRandomRowsWithTies) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    SeededRng rng(seed);
    const std::size_t experts = 1 + rng.Below(600);
    const std::size_t k = 1 + rng.Below(std::min<std::uint64_t>(experts, 40));
    std::vector<float> scores(experts);
    for (float& score : scores) score = static_cast<float>(rng.Below(50)) - 20.0F;
    std::vector<std::int64_t> order(experts);
    for (std::size_t e = 0; e < experts; ++e) order[e] = static_cast<std::int64_t>(e);
    std::stable_sort(order.begin(), order.end(), [&scores](std::int64_t a, std::int64_t b) {
      return scores[static_cast<std::size_t>(a)] > scores[static_cast<std::size_t>(b)];
    });
    order.resize(k);

    EXPECT_EQ(Top(scores, k), order) << "seed " << seed;
  }
}

TEST(TopKTest, WeightsAreProbabilitiesOfTheChosen) {
  SeededRng rng(9);
  const std::vector<float> logits = testing::GaussianFloats(64, 3.0, rng);
  const std::vector<std::int64_t> ids{63, 0, 17};
  double all = 0;
  double chosen = 0;
  for (const float logit : logits) all += std::exp(static_cast<double>(logit));
  for (const auto id : ids)
    chosen += std::exp(static_cast<double>(logits[static_cast<std::size_t>(id)]));

  const std::vector<float> renormalized = Weigh(logits, ids, true);
  const std::vector<float> plain = Weigh(logits, ids, false);

  for (std::size_t k = 0; k < ids.size(); ++k) {
    const double value = std::exp(static_cast<double>(logits[static_cast<std::size_t>(ids[k])]));
    EXPECT_NEAR(renormalized[k], value / chosen, 1e-6);
    EXPECT_NEAR(plain[k], value / all, 1e-6);
  }
}

TEST(TopKTest, WeightsOfUnusualLogitsAreAsDocumented) {
  EXPECT_THAT(Weigh({1000, -kInf}, {0, 1}, true), ElementsAre(1.0F, 0.0F));
  EXPECT_THAT(Weigh({3, kNan}, {0}, true), ElementsAre(1.0F)) << "nobody chose the NaN";
  EXPECT_TRUE(std::isnan(Weigh({3, kNan}, {0}, false)[0])) << "it is in the sum";
  EXPECT_TRUE(std::isnan(Weigh({kNan, kNan}, {0}, true)[0]));
  EXPECT_TRUE(std::isnan(Weigh({-kInf, -kInf}, {0}, true)[0]));
  EXPECT_TRUE(std::isnan(Weigh({kInf, 0}, {0}, true)[0]));
}

}  // namespace
}  // namespace switchyard
