#include "tests/reference/masked_ffn.h"

#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/reference/calc_diff.h"
#include "tests/reference/moe_reference.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using testing::FailsWith;
using testing::GaussianBf16;
using testing::RandomExpert;

constexpr Bf16 kNan = 0x7fc1;

// Experts with biases or without, and the sum of the definition in double.
class Experts {
 public:
  Experts(const MoeShape& shape, bool biases) : shape_(shape) {
    SeededRng rng(77);
    device_ = *MakeDevice("cpu");
    for (std::int32_t e = 0; e < shape.experts; ++e) {
      weights_.emplace_back(shape, 500 + static_cast<std::uint64_t>(e));
      std::vector<float> bias(static_cast<std::size_t>(2 * shape.intermediate + shape.hidden));
      for (float& value : bias) value = biases ? static_cast<float>(testing::NextGaussian(rng)) : 0;
      biases_.push_back(std::move(bias));
    }
    for (std::size_t e = 0; e < weights_.size(); ++e) {
      auto packed = device_->Pack(shape, View(e, biases));
      EXPECT_TRUE(packed.ok()) << packed.status();
      packed_.push_back(*std::move(packed));
    }
  }

  MaskedFfn Ffn(std::int64_t rows_max) {
    std::vector<const PackedExpert*> experts;
    for (const auto& packed : packed_) experts.push_back(packed.get());
    auto ffn = MaskedFfn::Create(device_.get(), shape_, experts, rows_max);
    EXPECT_TRUE(ffn.ok()) << ffn.status();
    return *std::move(ffn);
  }

  [[nodiscard]] std::vector<double> Reference(std::size_t expert, const Bf16* row) const {
    const auto hidden = static_cast<std::size_t>(shape_.hidden);
    const auto inner = static_cast<std::size_t>(shape_.intermediate);
    std::vector<double> x;
    for (std::size_t i = 0; i < hidden; ++i) x.push_back(static_cast<double>(Bf16ToFloat(row[i])));
    const std::vector<float>& bias = biases_[expert];
    std::vector<double> h = testing::MatVec(weights_[expert].gate, x);
    const std::vector<double> up = testing::MatVec(weights_[expert].up, x);
    for (std::size_t i = 0; i < inner; ++i) {
      h[i] = testing::Silu(h[i] + static_cast<double>(bias[i])) *
             (up[i] + static_cast<double>(bias[inner + i]));
    }
    std::vector<double> y = testing::MatVec(weights_[expert].down, h);
    for (std::size_t i = 0; i < hidden; ++i) y[i] += static_cast<double>(bias[2 * inner + i]);
    return y;
  }

 private:
  [[nodiscard]] ExpertWeightsView View(std::size_t e, bool biases) const {
    ExpertWeightsView view = weights_[e].view();
    if (!biases) return view;
    const auto inner = static_cast<std::size_t>(shape_.intermediate);
    const std::span<const float> all(biases_[e]);
    view.gate_bias = all.first(inner);
    view.up_bias = all.subspan(inner, inner);
    view.down_bias = all.subspan(2 * inner);
    return view;
  }

  MoeShape shape_;
  std::unique_ptr<DeviceBackend> device_;
  std::vector<RandomExpert> weights_;
  std::vector<std::vector<float>> biases_;  // gate, up, down
  std::vector<std::unique_ptr<PackedExpert>> packed_;
};

// R70: with and without biases; padding is NaN and gives exactly zero.
TEST(MaskedFfnTest, LowLatencyEqualsTheDefinitionAndPaddingIsZero) {
  constexpr MoeShape kShape{.hidden = 64, .intermediate = 48, .experts = 4, .top_k = 2};
  constexpr std::int64_t kBlock = 9;
  const std::vector<std::int32_t> masked_m{9, 0, 4, 1};
  for (const bool biases : {false, true}) {
    Experts experts(kShape, biases);
    SeededRng rng(5);
    std::vector<Bf16> x = GaussianBf16(4 * kBlock * 64, 1.0, rng);
    for (std::size_t e = 0; e < 4; ++e) {
      const auto used = static_cast<std::ptrdiff_t>(masked_m[e]) * 64;
      const auto block = static_cast<std::ptrdiff_t>(e) * kBlock * 64;
      std::fill(x.begin() + block + used, x.begin() + block + kBlock * 64, kNan);
    }
    MaskedFfn ffn = experts.Ffn(36);
    std::vector<float> y(x.size(), std::numeric_limits<float>::quiet_NaN());
    const std::vector<std::int64_t> shape{4, kBlock, 64};

    SY_ASSERT_OK(ffn.RunLowLatency({.x = x.data(), .shape = shape, .rows = masked_m}, y.data()));

    std::vector<double> want;
    for (std::size_t e = 0; e < 4; ++e) {
      for (std::size_t row = 0; row < kBlock; ++row) {
        std::vector<double> one(64, 0.0);
        if (row < static_cast<std::size_t>(masked_m[e])) {
          one = experts.Reference(e, x.data() + (e * kBlock + row) * 64);
        } else {
          for (std::size_t i = 0; i < 64; ++i) {
            ASSERT_EQ(y[(e * kBlock + row) * 64 + i], 0.0F) << e << " " << row;
          }
        }
        want.insert(want.end(), one.begin(), one.end());
      }
    }
    EXPECT_LE(CalcDiff(y, want), 1.5e-5) << "biases " << biases;
  }
}

// R72: the same experts and rows in normal mode, bit for bit.
TEST(MaskedFfnTest, NormalIsTheSamePathOverSegments) {
  constexpr MoeShape kShape{.hidden = 64, .intermediate = 48, .experts = 3, .top_k = 2};
  const std::vector<std::int32_t> counts{3, 0, 5};
  Experts experts(kShape, true);
  SeededRng rng(6);
  const std::vector<Bf16> x = GaussianBf16(8 * 64, 1.0, rng);
  std::vector<Bf16> padded(3 * 5 * 64, kNan);
  std::copy_n(x.begin(), 3 * 64, padded.begin());
  std::copy_n(x.begin() + 3 * 64, 5 * 64, padded.begin() + 2 * 5 * 64);
  MaskedFfn ffn = experts.Ffn(8);
  std::vector<float> normal(x.size(), std::numeric_limits<float>::quiet_NaN());
  std::vector<float> low_latency(padded.size());
  const std::vector<std::int64_t> flat{8, 64};
  const std::vector<std::int64_t> blocks{3, 5, 64};

  SY_ASSERT_OK(ffn.RunNormal({.x = x.data(), .shape = flat, .rows = counts}, normal.data()));
  SY_ASSERT_OK(
      ffn.RunLowLatency({.x = padded.data(), .shape = blocks, .rows = counts}, low_latency.data()));

  EXPECT_TRUE(std::equal(normal.begin(), normal.begin() + 3 * 64, low_latency.begin()));
  EXPECT_TRUE(std::equal(normal.begin() + 3 * 64, normal.end(), low_latency.begin() + 2 * 5 * 64));
}

// R71
TEST(MaskedFfnTest, RefusesWhatTheKernelsDoNotCompute) {
  constexpr MoeShape kShape{.hidden = 64, .intermediate = 48, .experts = 2, .top_k = 2};
  Experts experts(kShape, false);
  MaskedFfn ffn = experts.Ffn(8);
  SeededRng rng(6);
  const std::vector<Bf16> x = GaussianBf16(std::size_t{2} * 4 * 64, 1.0, rng);
  std::vector<float> y(x.size(), 7.0F);
  const std::vector<std::int32_t> rows{4, 4};
  const std::vector<std::int64_t> good{2, 4, 64};
  const std::vector<std::int64_t> flat{8, 64};
  const std::vector<std::int64_t> narrow{2, 4, 32};
  const float scale = 1;
  const FfnInput input{.x = x.data(), .shape = good, .rows = rows};
  const auto unsupported = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported);
  const auto bad_shape = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadShape);

  FfnInput wrong = input;
  wrong.scales = &scale;
  EXPECT_THAT(ffn.RunLowLatency(wrong, y.data()), unsupported);
  wrong = input;
  wrong.activation = FfnActivation::kGelu;
  EXPECT_THAT(ffn.RunLowLatency(wrong, y.data()), unsupported);
  wrong = input;
  wrong.gated = false;
  EXPECT_THAT(ffn.RunNormal(wrong, y.data()), unsupported);
  wrong = input;
  wrong.shape = flat;
  EXPECT_THAT(ffn.RunLowLatency(wrong, y.data()), bad_shape);
  EXPECT_THAT(ffn.RunNormal(input, y.data()), bad_shape);
  wrong.shape = narrow;
  EXPECT_THAT(ffn.RunLowLatency(wrong, y.data()), bad_shape);
  for (const std::vector<std::int32_t>& bad :
       {std::vector<std::int32_t>{4}, {4, -1}, {5, 1}, {4, 5}}) {
    wrong = input;
    wrong.rows = bad;
    EXPECT_THAT(ffn.RunLowLatency(wrong, y.data()), bad_shape);
  }
  for (const float value : y) ASSERT_EQ(value, 7.0F) << "nothing is written by a refusal";
}

// R73: the sizes of Qwen3.5-397B's unquantized draft layer: hidden 4096, intermediate 1024, top-10;
// three of its 512 experts.
TEST(MaskedFfnTest, RunsTheDraftLayerOfALargeModel) {
  constexpr MoeShape kShape{.hidden = 4096, .intermediate = 1024, .experts = 3, .top_k = 10};
  const std::vector<std::int32_t> masked_m{2, 1, 0};
  Experts experts(kShape, false);
  SeededRng rng(8);
  const std::vector<Bf16> x = GaussianBf16(std::size_t{3} * 2 * 4096, 1.0, rng);
  MaskedFfn ffn = experts.Ffn(6);
  std::vector<float> y(x.size(), std::numeric_limits<float>::quiet_NaN());
  const std::vector<std::int64_t> shape{3, 2, 4096};

  SY_ASSERT_OK(ffn.RunLowLatency({.x = x.data(), .shape = shape, .rows = masked_m}, y.data()));

  const std::vector<double> want = experts.Reference(0, x.data() + 4096);
  EXPECT_LE(CalcDiff(std::vector<float>(y.begin() + 4096, y.begin() + 2 * 4096), want), 1.5e-5);
}

}  // namespace
}  // namespace switchyard
