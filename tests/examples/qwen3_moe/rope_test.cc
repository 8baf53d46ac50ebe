#include "examples/qwen3_moe/rope.h"

#include <cmath>
#include <complex>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"

namespace switchyard::qwen3_moe {
namespace {

constexpr std::size_t kDim = 12;
constexpr double kTheta = 10000.0;

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

TEST(RopeTest, TurnsPairsLikeComplexNumbers) {
  SeededRng rng(3);
  const std::vector<float> before = testing::GaussianFloats(2 * kDim, 1.0, rng);
  std::vector<float> heads = before;

  Rope(kDim, kTheta).Turn(37, heads);

  for (std::size_t head = 0; head < 2 * kDim; head += kDim) {
    for (std::size_t i = 0; i < kDim / 2; ++i) {
      const double angle = 37 * std::pow(kTheta, -2.0 * static_cast<double>(i) / kDim);
      const std::complex<double> wanted =
          std::complex<double>(before[head + i], before[head + kDim / 2 + i]) *
          std::polar(1.0, angle);
      EXPECT_NEAR(heads[head + i], wanted.real(), 1e-5);
      EXPECT_NEAR(heads[head + kDim / 2 + i], wanted.imag(), 1e-5);
    }
  }
}

TEST(RopeTest, LeavesPositionZeroAsItIs) {
  SeededRng rng(4);
  const std::vector<float> before = testing::GaussianFloats(kDim, 1.0, rng);
  std::vector<float> heads = before;

  Rope(kDim, kTheta).Turn(0, heads);

  EXPECT_EQ(heads, before);
}

TEST(RopeTest, ScoresDependOnTheDistanceOfPositionsAlone) {
  SeededRng rng(5);
  const Rope rope(kDim, kTheta);
  const std::vector<float> query = testing::GaussianFloats(kDim, 1.0, rng);
  const std::vector<float> key = testing::GaussianFloats(kDim, 1.0, rng);
  std::vector<double> scores;

  for (const std::size_t start : {0U, 11U, 500U}) {
    std::vector<float> q = query;
    std::vector<float> k = key;
    rope.Turn(start + 9, q);
    rope.Turn(start, k);
    scores.push_back(Dot(q, k));
  }

  EXPECT_NEAR(scores[1], scores[0], 1e-4);
  EXPECT_NEAR(scores[2], scores[0], 1e-3);
  EXPECT_GT(std::abs(scores[0] - Dot(query, key)), 1e-2) << "turning changed nothing";
}

}  // namespace
}  // namespace switchyard::qwen3_moe
