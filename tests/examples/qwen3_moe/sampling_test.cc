#include "examples/qwen3_moe/sampling.h"

#include <array>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::qwen3_moe {
namespace {

using testing::FailsWith;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kDraws = 20000;

// How often each of four tokens comes in kDraws draws.
std::array<int, 4> Frequencies(const SamplingOptions& options, const std::vector<float>& logits) {
  std::array<int, 4> counts{};
  auto sampler = Sampler::Create(options);
  SY_EXPECT_OK(sampler);
  if (!sampler.ok()) return counts;
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<std::size_t>(sampler->Next(logits))];
  return counts;
}

// Probabilities 0.1, 0.2, 0.3, 0.4.
std::vector<float> Tenths() {
  return {std::log(1.0F), std::log(2.0F), std::log(3.0F), std::log(4.0F)};
}

TEST(SamplingTest, ArgmaxTakesTheLargestAndTheLowestOfEquals) {
  EXPECT_EQ(Argmax(std::vector<float>{1, 5, 2}), 1);
  EXPECT_EQ(Argmax(std::vector<float>{3, 5, 5, 1}), 1);
  EXPECT_EQ(Argmax(std::vector<float>{kNan, -5, kNan, -6}), 1);
  EXPECT_EQ(Argmax(std::vector<float>{kNan, kNan}), 0);
}

TEST(SamplingTest, ZeroTemperatureIsGreedy) {
  const auto counts = Frequencies({.temperature = 0, .top_p = 1, .seed = 3}, Tenths());

  EXPECT_EQ(counts[3], kDraws);
}

TEST(SamplingTest, DrawsByProbability) {
  const auto counts = Frequencies({.temperature = 1, .top_p = 1, .seed = 4}, Tenths());

  for (std::size_t i = 0; i < 4; ++i) {
    // Five standard deviations of a binomial of 20,000 draws are under 350.
    EXPECT_NEAR(counts[i], kDraws * (static_cast<double>(i) + 1) / 10, 350) << i;
  }
}

TEST(SamplingTest, TemperatureSharpens) {
  // At temperature 1/2 probabilities go with their squares: 1, 4, 9, 16 of 30.
  const auto counts = Frequencies({.temperature = 0.5, .top_p = 1, .seed = 5}, Tenths());

  for (std::size_t i = 0; i < 4; ++i) {
    const double share = static_cast<double>((i + 1) * (i + 1)) / 30;
    EXPECT_NEAR(counts[i], kDraws * share, 350) << i;
  }
}

TEST(SamplingTest, TopPKeepsTheSmallestSetThatReachesIt) {
  // 0.4 + 0.3 reach 0.65 and 0.4 alone does not.
  const auto counts = Frequencies({.temperature = 1, .top_p = 0.65, .seed = 6}, Tenths());

  EXPECT_EQ(counts[0], 0);
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(counts[2], kDraws * 3.0 / 7, 350);
  EXPECT_NEAR(counts[3], kDraws * 4.0 / 7, 350);
}

TEST(SamplingTest, ATinyTopPIsGreedyAndTiesKeepTheLowerId) {
  EXPECT_EQ(Frequencies({.temperature = 1, .top_p = 1e-9, .seed = 7}, Tenths())[3], kDraws);
  EXPECT_EQ(Frequencies({.temperature = 1, .top_p = 0.2, .seed = 7}, {1, 1, 1, 1})[0], kDraws);
}

TEST(SamplingTest, EqualSeedsGiveEqualTokensAndOthersDoNot) {
  const SamplingOptions options{.temperature = 1, .top_p = 1, .seed = 8};
  SY_ASSERT_OK_AND_ASSIGN(Sampler first, Sampler::Create(options));
  SY_ASSERT_OK_AND_ASSIGN(Sampler second, Sampler::Create(options));
  SY_ASSERT_OK_AND_ASSIGN(Sampler other,
                          Sampler::Create({.temperature = 1, .top_p = 1, .seed = 9}));
  std::vector<std::int32_t> a;
  std::vector<std::int32_t> b;
  std::vector<std::int32_t> c;

  for (int i = 0; i < 100; ++i) {
    a.push_back(first.Next(Tenths()));
    b.push_back(second.Next(Tenths()));
    c.push_back(other.Next(Tenths()));
  }

  EXPECT_EQ(a, b);
  EXPECT_NE(a, c);
}

TEST(SamplingTest, NeverDrawsNan) {
  const auto counts = Frequencies({.temperature = 1, .top_p = 1, .seed = 10}, {kNan, 0, kNan, 0});

  EXPECT_EQ(counts[0] + counts[2], 0);
  EXPECT_GT(counts[1], 0);
  EXPECT_GT(counts[3], 0);
}

TEST(SamplingTest, RefusesOptionsOutOfRange) {
  for (const SamplingOptions& options :
       {SamplingOptions{.temperature = -0.1}, SamplingOptions{.temperature = INFINITY},
        SamplingOptions{.temperature = std::nan("")}, SamplingOptions{.top_p = 0},
        SamplingOptions{.top_p = 1.01}, SamplingOptions{.top_p = std::nan("")}}) {
    EXPECT_THAT(Sampler::Create(options),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest))
        << options.temperature << " " << options.top_p;
  }
}

}  // namespace
}  // namespace switchyard::qwen3_moe
