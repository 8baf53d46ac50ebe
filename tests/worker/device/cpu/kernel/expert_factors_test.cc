#include "worker/device/cpu/kernel/expert_factors.h"

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

constexpr KernelDims kDims{.hidden = 130, .intermediate = 5};

TEST(ExpertFactorsTest, PlainWeightsHaveNone) {
  SY_ASSERT_OK_AND_ASSIGN(const ExpertFactors factors, ExpertFactors::Pack(kDims, {}));

  EXPECT_EQ(factors.affine(), nullptr);
  EXPECT_EQ(factors.blocks().gate.at, nullptr);
  EXPECT_EQ(factors.blocks().up.at, nullptr);
  EXPECT_EQ(factors.blocks().down.at, nullptr);
  EXPECT_EQ(factors.bytes(), 0);
}

TEST(ExpertFactorsTest, ScalesOfTensorAndOutputsAreOneFactor) {
  const std::vector<float> channels{1, 2, 3, 4, 5};
  const std::vector<float> bias{-1, -2, -3, -4, -5};
  ExpertWeightsView view;
  view.gate_scales = {.tensor = 0.5F, .channels = channels};
  view.up_scales = {.tensor = 3};
  view.up_bias = bias;

  SY_ASSERT_OK_AND_ASSIGN(const ExpertFactors factors, ExpertFactors::Pack(kDims, view));

  ASSERT_NE(factors.affine(), nullptr);
  const KernelAffine& affine = *factors.affine();
  for (std::size_t i = 0; i < 16; ++i) {
    EXPECT_EQ(affine.gate_scale[i], i < 5 ? 0.5F * channels[i] : 0) << i;
    EXPECT_EQ(affine.up_scale[i], i < 5 ? 3.0F : 0) << i;
    EXPECT_EQ(affine.gate_bias[i], 0) << i;
    EXPECT_EQ(affine.up_bias[i], i < 5 ? bias[i] : 0) << i;
  }
  for (std::size_t i = 0; i < 144; ++i) {
    EXPECT_EQ(affine.down_scale[i], i < 130 ? 1.0F : 0) << i;
    EXPECT_EQ(affine.down_bias[i], 0) << i;
  }
  EXPECT_EQ(factors.blocks().gate.at, nullptr);
  for (const float* line : {affine.gate_scale, affine.up_scale, affine.down_scale, affine.gate_bias,
                            affine.up_bias, affine.down_bias}) {
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(line) % 64, 0U);
  }
}

TEST(ExpertFactorsTest, GateAndUpHaveBlocksWhenOneOfThemHas) {
  const std::vector<float> blocks{2, 7};
  ExpertWeightsView view;
  view.up_scales = {.blocks = blocks};

  SY_ASSERT_OK_AND_ASSIGN(const ExpertFactors factors, ExpertFactors::Pack(kDims, view));

  EXPECT_EQ(factors.affine(), nullptr) << "no work is left for the finished sums";
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(factors.blocks().gate.at[i], 1) << i;
    EXPECT_EQ(factors.blocks().up.at[i], blocks[i]) << i;
  }
  EXPECT_EQ(factors.blocks().down.at, nullptr);
}

TEST(ExpertFactorsTest, GroupsLieInLinesOfSixteenOutputs) {
  std::vector<float> groups;  // of up: [5, 2]
  for (int i = 0; i < 10; ++i) groups.push_back(static_cast<float>(i + 1));
  std::vector<float> down_groups(130, 2);  // [130, 1]
  const std::vector<float> down_blocks{3, 5};
  ExpertWeightsView view;
  view.up_scales = {.groups = groups};
  view.down_scales = {.blocks = down_blocks, .groups = down_groups};

  SY_ASSERT_OK_AND_ASSIGN(const ExpertFactors factors, ExpertFactors::Pack(kDims, view));

  const auto& [gate, up, down] = factors.blocks();
  EXPECT_EQ(factors.affine(), nullptr);
  EXPECT_EQ(gate.width, 1);
  EXPECT_EQ(gate.at[1], 1) << "none of its own";
  ASSERT_EQ(up.width, 16);
  ASSERT_EQ(down.width, 16);
  for (std::size_t n = 0; n < 32; ++n) {
    for (std::size_t block = 0; block < 2; ++block) {
      const float scale = up.at[n / 16 * 32 + block * 16 + n % 16];
      EXPECT_EQ(scale, n < 5 ? groups[2 * n + block] : 0) << n << " " << block;
    }
  }
  for (std::size_t n = 0; n < 160; ++n) {
    EXPECT_EQ(down.at[n], n < 128 ? 6 : n < 130 ? 10 : 0) << n;
  }
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(up.at) % 64, 0U);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(down.at) % 64, 0U);
  EXPECT_EQ(factors.bytes(), 4 * (16 + 2 * 32 + 160));
}

}  // namespace
}  // namespace switchyard
