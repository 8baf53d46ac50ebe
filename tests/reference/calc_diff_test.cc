#include "tests/reference/calc_diff.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard::testing {
namespace {

TEST(CalcDiffTest, IsZeroForEqualAndForAllZeroTensors) {
  const std::vector<float> x = {1.0F, -2.0F, 3.5F};
  const std::vector<float> zeros(3, 0.0F);

  EXPECT_DOUBLE_EQ(CalcDiff(x, x), 0.0);
  EXPECT_DOUBLE_EQ(CalcDiff(zeros, zeros), 0.0);
}

TEST(CalcDiffTest, IsHalfTheSquaredRelativeErrorOfAScaledTensor) {
  const std::vector<double> x = {3.0, -4.0, 12.0};
  const std::vector<double> y = {3.0 * 1.01, -4.0 * 1.01, 12.0 * 1.01};

  // 1 - 2 s / (1 + s^2) with s = 1.01.
  EXPECT_NEAR(CalcDiff(x, y), 0.0001 / (1.0 + 1.01 * 1.01), 1e-15);
}

TEST(CalcDiffTest, IsOneAgainstZerosAndTwoAgainstTheNegative) {
  const std::vector<float> x = {1.0F, -2.0F};
  const std::vector<float> zeros(2, 0.0F);
  const std::vector<float> negative = {-1.0F, 2.0F};

  EXPECT_DOUBLE_EQ(CalcDiff(x, zeros), 1.0);
  EXPECT_DOUBLE_EQ(CalcDiff(x, negative), 2.0);
}

TEST(CalcDiffTest, NanFailsEveryBound) {
  const std::vector<float> x = {1.0F, std::numeric_limits<float>::quiet_NaN()};
  const std::vector<float> y = {1.0F, 2.0F};

  EXPECT_FALSE(CalcDiff(x, y) <= 1e9);
  EXPECT_FALSE(CalcDiffWorstRow(x, y, 1) <= 1e9);
}

TEST(CalcDiffTest, ShiftedIsOfBothPlusOne) {
  const std::vector<float> x = {0.0F, 1.0F};
  const std::vector<float> y = {1.0F, 1.0F};

  // 1 - 2 (1*2 + 2*2) / (1 + 4 + 4 + 4)
  EXPECT_NEAR(CalcDiffShifted(x, y), 1.0 - 12.0 / 13.0, 1e-15);
  EXPECT_DOUBLE_EQ(CalcDiffShifted(x, x), 0.0);
}

TEST(CalcDiffTest, WorstRowFindsTheRowThatThePoolHides) {
  std::vector<float> x(64, 100.0F);
  std::vector<float> y = x;
  x.insert(x.end(), {1.0F, 1.0F});
  y.insert(y.end(), {1.0F, -1.0F});

  const std::vector<double> rows = CalcDiffRows(x, y, 2);

  ASSERT_EQ(rows.size(), 33U);
  EXPECT_DOUBLE_EQ(rows.front(), 0.0);
  EXPECT_DOUBLE_EQ(rows.back(), 1.0);
  EXPECT_DOUBLE_EQ(CalcDiffWorstRow(x, y, 2), 1.0);
  EXPECT_LT(CalcDiff(x, y), 1e-5);
}

}  // namespace
}  // namespace switchyard::testing
