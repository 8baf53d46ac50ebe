// What every device must do with scales that stay apart from the weights, over the devices of
// tests/testing/conformance_devices.h that this machine can run.
#include <algorithm>
#include <bit>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/reference/calc_diff.h"
#include "tests/reference/moe_reference.h"
#include "tests/testing/conformance_devices.h"
#include "tests/testing/expert_runs.h"
#include "tests/testing/random_scales.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/machine/cpuid.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::CalcDiffWorstRow;
using testing::ConformanceDevice;
using testing::ExpertScales;
using testing::FailsWith;
using testing::GaussianBf16;
using testing::RandomExpert;
using testing::ScaleKinds;

constexpr std::uint64_t kSeed = 83;
// Bounds of calc_diff to the double reference; docs/PROTOCOL.md lists them.
constexpr double kRowMax = 1e-11;
constexpr double kRowMaxWithBf16Middle = 2.5e-5;
constexpr ScaleKinds kNone{};
constexpr ScaleKinds kTensor{.tensor = true};
constexpr ScaleKinds kChannels{.channels = true};
constexpr ScaleKinds kBlocks{.blocks = true};
constexpr ScaleKinds kGroups{.groups = true};
constexpr ScaleKinds kAll{.tensor = true, .channels = true, .blocks = true, .groups = true};

MoeShape ShapeOf(std::int32_t hidden, std::int32_t intermediate) {
  return {.hidden = hidden, .intermediate = intermediate, .experts = 1, .top_k = 1};
}

// Weights with scales, and rows for them.
struct Scaled {
  Scaled(const MoeShape& of, const ScaleKinds& gate, const ScaleKinds& up, const ScaleKinds& down,
         std::size_t row_count)
      : shape(of), weights(of, kSeed), scales(of, gate, up, down, kSeed + 1) {
    SeededRng rng(kSeed + 2);
    x = GaussianBf16(row_count * hidden(), 1.0, rng);
    for (std::size_t row = 0; row < row_count; ++row) rows.push_back(x.data() + row * hidden());
  }
  [[nodiscard]] std::size_t hidden() const { return static_cast<std::size_t>(shape.hidden); }
  [[nodiscard]] ExpertWeightsView view() const {
    ExpertWeightsView view = weights.view();
    scales.AddTo(&view);
    return view;
  }
  // Poisons the output first.
  [[nodiscard]] std::vector<float> Run(DeviceBackend& device, std::size_t first,
                                       std::size_t count) const {
    auto packed = device.Pack(shape, view());
    EXPECT_TRUE(packed.ok()) << packed.status();
    std::vector<float> out(count * hidden(), std::numeric_limits<float>::quiet_NaN());
    const testing::RowsForExpert batch{
        .expert = packed->get(), .rows = std::span(rows).subspan(first, count), .out = out.data()};
    testing::RunOnDevice(device, shape, {&batch, 1});
    return out;
  }
  [[nodiscard]] std::vector<double> Reference() const {
    std::vector<double> y;
    for (const Bf16* row : rows) {
      std::vector<double> one;
      for (std::size_t k = 0; k < hidden(); ++k) {
        one.push_back(static_cast<double>(Bf16ToFloat(row[k])));
      }
      std::vector<double> h = testing::MatVec(weights.gate, scales.gate.view(), one);
      const std::vector<double> up = testing::MatVec(weights.up, scales.up.view(), one);
      for (std::size_t i = 0; i < h.size(); ++i) h[i] = testing::Silu(h[i]) * up[i];
      const std::vector<double> down = testing::MatVec(weights.down, scales.down.view(), h);
      y.insert(y.end(), down.begin(), down.end());
    }
    return y;
  }

  MoeShape shape;
  RandomExpert weights;
  ExpertScales scales;
  std::vector<Bf16> x;
  std::vector<const Bf16*> rows;
};

bool SameBits(const std::vector<float>& got, const float* want) {
  return std::equal(got.begin(), got.end(), want, [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  });
}

class DeviceScales : public ::testing::TestWithParam<ConformanceDevice> {
 protected:
  void SetUp() override {
    const std::string why_not = GetParam().why_not_here();
    if (!why_not.empty()) GTEST_SKIP() << why_not;
    device_ = Make(1);
  }
  static std::unique_ptr<DeviceBackend> Make(int threads) {
    auto device = GetParam().make(threads);
    EXPECT_TRUE(device.ok()) << device.status();
    return std::move(device).value();
  }
  static double DiffMax() { return GetParam().middle_in_bf16 ? kRowMaxWithBf16Middle : kRowMax; }

  std::unique_ptr<DeviceBackend> device_;
};

// Sizes around blocks of 128 and panels of 16 and 32; every kind alone and together.
TEST_P(DeviceScales, AreThoseOfTheDoubleReference) {
  const struct {
    ScaleKinds gate;
    ScaleKinds up;
    ScaleKinds down;
  } kinds[] = {{kTensor, kTensor, kTensor}, {kChannels, kChannels, kChannels},
               {kBlocks, kBlocks, kBlocks}, {kGroups, kGroups, kGroups},
               {kAll, kAll, kAll},          {kBlocks, kChannels, kTensor},
               {kNone, kBlocks, kNone},     {kNone, kNone, kBlocks},
               {kTensor, kAll, kChannels},  {kNone, kGroups, kNone},
               {kGroups, kBlocks, kBlocks}, {kBlocks, kBlocks, kGroups}};
  const MoeShape shapes[] = {ShapeOf(1, 1),     ShapeOf(16, 128),  ShapeOf(128, 128),
                             ShapeOf(129, 127), ShapeOf(127, 129), ShapeOf(332, 205),
                             ShapeOf(256, 384), ShapeOf(47, 300),  ShapeOf(273, 145)};
  for (const MoeShape& shape : shapes) {
    for (std::size_t which = 0; which < std::size(kinds); ++which) {
      SCOPED_TRACE(::testing::Message() << "hidden " << shape.hidden << ", intermediate "
                                        << shape.intermediate << ", kinds " << which);
      const auto& [gate, up, down] = kinds[which];
      const Scaled scaled(shape, gate, up, down, 19);

      const std::vector<float> got = scaled.Run(*device_, 0, 19);

      EXPECT_LE(CalcDiffWorstRow(got, scaled.Reference(), scaled.hidden()), DiffMax());
    }
  }
}

// A row must come out the same alone and in every company, on every number of threads.
TEST_P(DeviceScales, LeaveRowsBitEqualInEveryCompany) {
  constexpr std::size_t kRows = 70;
  const struct {
    MoeShape shape;
    ScaleKinds gate;
    ScaleKinds up;
    ScaleKinds down;
  } cases[] = {{ShapeOf(332, 205), kBlocks, kChannels, kBlocks},
               {ShapeOf(256, 256), kBlocks, kBlocks, kBlocks},
               {ShapeOf(332, 205), kGroups, kAll, kGroups},
               {ShapeOf(256, 256), kGroups, kBlocks, kGroups}};
  for (const auto& [shape, gate, up, down] : cases) {
    SCOPED_TRACE(::testing::Message()
                 << "hidden " << shape.hidden << ", of groups " << gate.groups);
    const Scaled scaled(shape, gate, up, down, kRows);
    const std::vector<float> all = scaled.Run(*device_, 0, kRows);
    for (std::size_t row = 0; row < kRows; ++row) {
      EXPECT_TRUE(SameBits(scaled.Run(*device_, row, 1), all.data() + row * scaled.hidden()))
          << "row " << row << " alone";
    }
    for (const std::size_t size : {2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 15U, 16U, 17U, 31U, 33U}) {
      for (const std::size_t first : {std::size_t{0}, kRows - size}) {
        EXPECT_TRUE(SameBits(scaled.Run(*device_, first, size), &all[first * scaled.hidden()]))
            << size << " rows from " << first;
      }
    }
    for (const int threads : {2, 3}) {
      EXPECT_TRUE(SameBits(scaled.Run(*Make(threads), 0, kRows), all.data()))
          << threads << " threads";
    }
  }
}

// A block is 128 outputs whose groups have one scale: the same bits, by either way to say it.
TEST_P(DeviceScales, OfGroupsAreThoseOfABlockWhereTheyAreEqual) {
  constexpr std::size_t kRows = 19;
  const Scaled of_blocks(ShapeOf(332, 205), kBlocks, kBlocks, kBlocks, kRows);
  Scaled of_groups = of_blocks;
  const auto spread = [](std::int64_t outputs, std::int64_t k_count, WeightScales* scales) {
    for (std::int64_t n = 0; n < outputs; ++n) {
      for (std::int64_t k = 0; k < k_count; k += kScaleBlock) {
        const std::int64_t block = n / kScaleBlock * ScaleBlocks(k_count) + k / kScaleBlock;
        scales->groups.push_back(scales->blocks[static_cast<std::size_t>(block)]);
      }
    }
    scales->blocks.clear();
  };
  spread(205, 332, &of_groups.scales.gate);
  spread(205, 332, &of_groups.scales.up);
  spread(332, 205, &of_groups.scales.down);

  const std::vector<float> want = of_blocks.Run(*device_, 0, kRows);

  EXPECT_TRUE(SameBits(of_groups.Run(*device_, 0, kRows), want.data()));
}

// A block or a group of zeros may have the scale 0, and its weights then count for nothing.
TEST_P(DeviceScales, MayBeZeroForABlockOrAGroup) {
  Scaled scaled(ShapeOf(300, 140), kBlocks, kGroups, kAll, 5);
  for (WeightScales* scales : {&scaled.scales.gate, &scaled.scales.down}) scales->blocks[1] = 0;
  for (WeightScales* scales : {&scaled.scales.up, &scaled.scales.down}) scales->groups[7] = 0;

  const std::vector<float> got = scaled.Run(*device_, 0, 5);

  EXPECT_LE(CalcDiffWorstRow(got, scaled.Reference(), scaled.hidden()), DiffMax());
}

TEST_P(DeviceScales, AreRefusedWhenTheyAreNone) {
  const MoeShape shape = ShapeOf(300, 140);
  const Scaled good(shape, kAll, kAll, kAll, 1);
  SY_EXPECT_OK(device_->Pack(shape, good.view()).status());
  for (const float wrong :
       {-1.0F, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Scaled scaled = good;
    scaled.scales.up.channels[139] = wrong;
    EXPECT_THAT(device_->Pack(shape, scaled.view()).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    scaled = good;
    scaled.scales.down.blocks[5] = wrong;
    EXPECT_THAT(device_->Pack(shape, scaled.view()).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    if (wrong < 0) continue;
    scaled = good;
    scaled.scales.gate.groups[419] = wrong;
    EXPECT_THAT(device_->Pack(shape, scaled.view()).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  }
}

// As tools write it that use the code -8 of INT4 for the largest weight of a group.
TEST_P(DeviceScales, MayBeNegativeForAGroup) {
  Scaled scaled(ShapeOf(300, 140), kGroups, kGroups, kGroups, 8);
  for (WeightScales* scales : {&scaled.scales.gate, &scaled.scales.up, &scaled.scales.down}) {
    for (std::size_t i = 0; i < scales->groups.size(); i += 3) scales->groups[i] *= -1;
  }

  const std::vector<float> got = scaled.Run(*device_, 0, 5);

  EXPECT_LE(CalcDiffWorstRow(got, scaled.Reference(), scaled.hidden()), DiffMax());
}

TEST_P(DeviceScales, AreRefusedWhenTheyDoNotFitTheWeights) {
  const MoeShape shape = ShapeOf(300, 140);
  const auto bad_shape = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape);
  const Scaled good(shape, kAll, kAll, kAll, 1);
  for (const auto kind : {&WeightScales::channels, &WeightScales::blocks, &WeightScales::groups}) {
    Scaled scaled = good;
    (scaled.scales.gate.*kind).pop_back();
    EXPECT_THAT(device_->Pack(shape, scaled.view()).status(), bad_shape);
    scaled = good;
    (scaled.scales.down.*kind).push_back(1.0F);
    EXPECT_THAT(device_->Pack(shape, scaled.view()).status(), bad_shape);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceScales, ::testing::ValuesIn(testing::ConformanceDevices()),
                         [](const auto& device) { return device.param.name; });

}  // namespace
}  // namespace switchyard
