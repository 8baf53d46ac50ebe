#include "examples/qwen3_moe/rms_norm.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"

namespace switchyard::qwen3_moe {
namespace {

TEST(RmsNormTest, NormalizesEachRowLikeDouble) {
  SeededRng rng(7);
  const std::vector<float> rows = testing::GaussianFloats(3 * 20, 5.0, rng);
  const std::vector<float> weight = testing::GaussianFloats(20, 1.0, rng);
  std::vector<float> out(rows.size(), NAN);

  RmsNorm(rows, weight, 1e-3F, out.data());

  for (std::size_t r = 0; r < 3; ++r) {
    double squares = 0;
    for (std::size_t i = 0; i < 20; ++i) squares += std::pow(rows[r * 20 + i], 2);
    for (std::size_t i = 0; i < 20; ++i) {
      const double wanted = rows[r * 20 + i] * weight[i] / std::sqrt(squares / 20 + 1e-3);
      EXPECT_NEAR(out[r * 20 + i], wanted, 1e-6 * std::max(1.0, std::abs(wanted)));
    }
  }
}

TEST(RmsNormTest, WorksInPlace) {
  SeededRng rng(8);
  std::vector<float> rows = testing::GaussianFloats(2 * 12, 1.0, rng);
  const std::vector<float> weight = testing::GaussianFloats(12, 1.0, rng);
  std::vector<float> apart(rows.size(), NAN);

  RmsNorm(rows, weight, 1e-6F, apart.data());
  RmsNorm(rows, weight, 1e-6F, rows.data());

  EXPECT_EQ(rows, apart);
}

TEST(RmsNormTest, EpsilonKeepsARowOfZerosFinite) {
  const std::vector<float> rows(4, 0.0F);
  const std::vector<float> weight(4, 2.0F);
  std::vector<float> out(4, NAN);

  RmsNorm(rows, weight, 1e-6F, out.data());

  EXPECT_EQ(out, rows);
}

}  // namespace
}  // namespace switchyard::qwen3_moe
