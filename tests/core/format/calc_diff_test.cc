#include "core/format/calc_diff.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

std::vector<float> RandomFloats(std::size_t count, SeededRng& rng) {
  std::vector<float> floats(count);
  for (float& value : floats) value = static_cast<float>(rng.Uniform()) - 0.5F;
  return floats;
}

double Diff(const std::vector<float>& x, const std::vector<float>& y) { return CalcDiff(x, y); }

TEST(CalcDiffTest, IsItsFormula) {
  // 1 - 2 * (1*3 + 2*4) / (1 + 4 + 9 + 16)
  EXPECT_NEAR(Diff({1, 2}, {3, 4}), 1 - 22.0 / 30, 1e-15);
  EXPECT_EQ(Diff({1, 2}, {1, 2}), 0);
  EXPECT_EQ(Diff({1, 2}, {-1, -2}), 2);
  EXPECT_EQ(Diff({1, 2}, {0, 0}), 1);
}

TEST(CalcDiffTest, IsAboutHalfTheSquaredErrorOfAScale) {
  SeededRng rng(1);
  const std::vector<float> x = RandomFloats(1000, rng);
  std::vector<float> y = x;
  for (float& value : y) value *= 1.01F;

  EXPECT_NEAR(Diff(x, y), 0.01 * 0.01 / 2, 1e-6);
}

TEST(CalcDiffTest, PoolsByAddingSums) {
  SeededRng rng(2);
  const std::vector<float> x = RandomFloats(60, rng);
  const std::vector<float> y = RandomFloats(60, rng);
  DiffSums pooled;
  for (std::size_t start = 0; start < 60; start += 20) {
    DiffSums part;
    part.Add(std::span(x).subspan(start, 20), std::span(y).subspan(start, 20));
    pooled.Add(part);
  }

  EXPECT_NEAR(pooled.Diff(), Diff(x, y), 1e-12);
}

TEST(CalcDiffTest, ZerosAreEqualAndNanIsNot) {
  EXPECT_EQ(Diff({0, 0}, {0, 0}), 0);
  EXPECT_EQ(DiffSums().Diff(), 0);
  EXPECT_TRUE(std::isnan(Diff({1, std::numeric_limits<float>::quiet_NaN()}, {1, 2})));
  EXPECT_TRUE(std::isnan(Diff({1, std::numeric_limits<float>::infinity()}, {1, 2})));
}

}  // namespace
}  // namespace switchyard
