#include "tests/reference/moe_reference.h"

#include "gtest/gtest.h"

namespace switchyard::testing {
namespace {

std::vector<Bf16> Bits(std::initializer_list<float> values) {
  std::vector<Bf16> bits;
  for (const float value : values) bits.push_back(FloatToBf16(value));
  return bits;
}

// hidden 2, intermediate 1; every number worked out by hand.
struct HandExpert {
  std::vector<Bf16> gate = Bits({1.0F, 2.0F});
  std::vector<Bf16> up = Bits({3.0F, -1.0F});
  std::vector<Bf16> down = Bits({0.5F, -4.0F});
  [[nodiscard]] ExpertWeightsView view() const { return {.gate = gate, .up = up, .down = down}; }
};

TEST(MoeReferenceTest, ExpertIsTheGatedProductWorkedByHand) {
  const HandExpert expert;
  const std::vector<Bf16> x = Bits({2.0F, 0.5F});

  const std::vector<double> y = ReferenceExpert(expert.view(), x);

  // gate = 2 + 1 = 3, up = 6 - 0.5 = 5.5, h = 3 / (1 + e^-3) * 5.5.
  const double h = 3.0 / (1.0 + std::exp(-3.0)) * 5.5;
  ASSERT_EQ(y.size(), 2U);
  EXPECT_DOUBLE_EQ(y[0], 0.5 * h);
  EXPECT_DOUBLE_EQ(y[1], -4.0 * h);
}

TEST(MoeReferenceTest, LayerWeighsEachExpertOnceAndSkipsMinusOne) {
  const HandExpert a;
  HandExpert b;
  b.down = Bits({1.0F, 1.0F});
  const std::vector<ExpertWeightsView> experts = {a.view(), b.view()};
  const std::vector<Bf16> x = Bits({2.0F, 0.5F, 2.0F, 0.5F, 2.0F, 0.5F});
  const std::vector<std::int32_t> ids = {1, 0, -1, 0, -1, -1};
  const std::vector<float> weights = {0.25F, 0.5F, 9.0F, 2.0F, 1.0F, 1.0F};

  const std::vector<double> y =
      ReferenceMoeLayer({.hidden = 2, .intermediate = 1, .experts = 2, .top_k = 2}, experts,
                        {.x = x, .ids = ids, .weights = weights});

  const double h = 3.0 / (1.0 + std::exp(-3.0)) * 5.5;
  EXPECT_DOUBLE_EQ(y[0], 0.25 * h + 0.5 * 0.5 * h);
  EXPECT_DOUBLE_EQ(y[1], 0.25 * h + 0.5 * -4.0 * h);
  EXPECT_DOUBLE_EQ(y[2], 2.0 * 0.5 * h);
  EXPECT_DOUBLE_EQ(y[3], 2.0 * -4.0 * h);
  EXPECT_EQ(y[4], 0.0);
  EXPECT_EQ(y[5], 0.0);
}

}  // namespace
}  // namespace switchyard::testing
