// What every device must do, run over the devices of tests/testing/conformance_devices.h; one that
// this machine lacks is skipped, with the reason printed.
#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/reference/activation_reference.h"
#include "tests/reference/calc_diff.h"
#include "tests/reference/moe_reference.h"
#include "tests/testing/conformance_devices.h"
#include "tests/testing/expert_runs.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/machine/cpuid.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using testing::CalcDiffWorstRow;
using testing::ConformanceDevice;
using testing::FailsWith;
using testing::GaussianBf16;
using testing::RandomExpert;
using testing::ReferenceExpert;
using testing::ReferenceRound;
using testing::RowsForExpert;
using testing::RunInputs;
using testing::RunOnDevice;

constexpr std::uint64_t kSeed = 20;
// Bounds of calc_diff to the double reference; docs/PROTOCOL.md lists them.
constexpr double kPooledMax = 1.5e-5;
constexpr double kRowMax = 2.5e-5;
constexpr double kTinyShapeMax = 5e-5;
constexpr double kRoundedMax = 1e-4;

// One packed expert of `backend` with its rows; Run poisons the output first.
class Bench {
 public:
  Bench(DeviceBackend& backend, const MoeShape& shape, std::size_t row_count,
        std::uint64_t seed = kSeed)
      : backend_(&backend), shape_(shape), expert_(shape, seed) {
    SeededRng rng(seed + 1);
    x_ = GaussianBf16(row_count * hidden(), 1.0, rng);
    auto packed = backend.Pack(shape, expert_.view());
    EXPECT_TRUE(packed.ok()) << packed.status();
    packed_ = std::move(packed).value();
  }

  [[nodiscard]] std::size_t hidden() const { return static_cast<std::size_t>(shape_.hidden); }
  std::vector<Bf16>& x() { return x_; }
  [[nodiscard]] const PackedExpert& packed() const { return *packed_; }
  [[nodiscard]] const Bf16* Row(std::size_t row) const { return x_.data() + row * hidden(); }

  std::vector<float> Run(const std::vector<const Bf16*>& rows, ExpertAmax* amax = nullptr) {
    std::vector<float> out(rows.size() * hidden(), std::numeric_limits<float>::quiet_NaN());
    const RowsForExpert batch = {
        .expert = packed_.get(), .rows = rows, .out = out.data(), .amax = amax};
    RunOnDevice(*backend_, shape_, {&batch, 1});
    return out;
  }
  std::vector<float> RunRows(const std::vector<std::size_t>& which, ExpertAmax* amax = nullptr) {
    std::vector<const Bf16*> rows(which.size());
    for (std::size_t i = 0; i < which.size(); ++i) rows[i] = Row(which[i]);
    return Run(rows, amax);
  }
  std::vector<float> RunAll(ExpertAmax* amax = nullptr) {
    std::vector<std::size_t> all(x_.size() / hidden());
    std::iota(all.begin(), all.end(), 0U);
    return RunRows(all, amax);
  }
  [[nodiscard]] std::vector<double> Reference() const {
    std::vector<double> y;
    for (std::size_t at = 0; at < x_.size(); at += hidden()) {
      const std::vector<double> row =
          ReferenceExpert(expert_.view(), std::span(x_).subspan(at, hidden()));
      y.insert(y.end(), row.begin(), row.end());
    }
    return y;
  }
  // What gate and up make of a row.
  [[nodiscard]] std::vector<double> ReferenceMiddle(std::size_t row) const {
    const std::vector<double> x = Doubles(std::span(x_).subspan(row * hidden(), hidden()));
    std::vector<double> h = testing::MatVec(expert_.gate, x);
    const std::vector<double> up = testing::MatVec(expert_.up, x);
    for (std::size_t i = 0; i < h.size(); ++i) h[i] = testing::Silu(h[i]) * up[i];
    return h;
  }

 private:
  static std::vector<double> Doubles(std::span<const Bf16> row) {
    std::vector<double> values;
    for (const Bf16 bits : row) values.push_back(static_cast<double>(Bf16ToFloat(bits)));
    return values;
  }

  DeviceBackend* backend_;
  MoeShape shape_;
  RandomExpert expert_;
  std::vector<Bf16> x_;
  std::unique_ptr<PackedExpert> packed_;
};

// Bit for bit; a NaN equals itself.
::testing::AssertionResult SameBits(const float* got, const float* want, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i])) {
      return ::testing::AssertionFailure()
             << "element " << i << " is " << got[i] << ", not " << want[i];
    }
  }
  return ::testing::AssertionSuccess();
}

class DeviceConformance : public ::testing::TestWithParam<ConformanceDevice> {
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
  std::unique_ptr<DeviceBackend> device_;
};

TEST_P(DeviceConformance, AdvertisesWhatItProved) {
  const CapabilitySet& capabilities = device_->capabilities();

  EXPECT_EQ(capabilities.kernel_family, GetParam().family);
  EXPECT_EQ(capabilities.device_profile, GetParam().profile);
  EXPECT_TRUE(capabilities.Takes(DispatchDtype::kBf16));
  EXPECT_TRUE(capabilities.Takes(QuantScheme::kNone));
  EXPECT_GT(capabilities.max_top_k, 0);
  for (const DispatchDtype dtype : capabilities.wire_dtypes) {
    SY_EXPECT_OK(device_->MakeCodec({.format = DefaultWireFormat(dtype)}).status());
  }
}

TEST_P(DeviceConformance, MatchesTheDoubleReference) {
  constexpr MoeShape kShapes[] = {{.hidden = 2048, .intermediate = 768, .experts = 1, .top_k = 1},
                                  {.hidden = 256, .intermediate = 128, .experts = 1, .top_k = 1}};
  for (const MoeShape& shape : kShapes) {
    Bench bench(*device_, shape, shape.hidden == 2048 ? 5 : 34);

    const std::vector<float> got = bench.RunAll();

    const std::vector<double> want = bench.Reference();
    EXPECT_LE(CalcDiff(got, want), kPooledMax) << "hidden " << shape.hidden;
    EXPECT_LE(CalcDiffWorstRow(got, want, bench.hidden()), kRowMax) << "hidden " << shape.hidden;
  }
}

TEST_P(DeviceConformance, TakesAnyShape) {
  constexpr std::int32_t kSizes[] = {1, 2, 15, 16, 17, 31, 32, 33, 48, 65};
  for (const std::int32_t hidden : kSizes) {
    for (const std::int32_t intermediate : kSizes) {
      const MoeShape shape = {
          .hidden = hidden, .intermediate = intermediate, .experts = 1, .top_k = 1};
      Bench bench(*device_, shape, 18);

      const std::vector<float> got = bench.RunAll();

      EXPECT_LE(CalcDiff(got, bench.Reference()), kTinyShapeMax)
          << "hidden " << hidden << ", intermediate " << intermediate << ", seed " << kSeed;
    }
  }
}

// A row has the same bits by itself and in every company: docs/PROTOCOL.md, "Numbers".
TEST_P(DeviceConformance, RowsAreBitEqualAloneInBatchesAndShuffled) {
  constexpr std::size_t kRows = 70;
  constexpr MoeShape kShapes[] = {{.hidden = 256, .intermediate = 128, .experts = 1, .top_k = 1},
                                  {.hidden = 84, .intermediate = 45, .experts = 1, .top_k = 1}};
  for (const MoeShape& shape : kShapes) {
    Bench bench(*device_, shape, kRows);
    std::vector<std::vector<float>> alone;
    for (std::size_t row = 0; row < kRows; ++row) alone.push_back(bench.RunRows({row}));
    SeededRng rng(kSeed);

    for (const std::size_t size : {2U, 15U, 16U, 17U, 33U, 70U}) {
      for (int round = 0; round < 8; ++round) {
        std::vector<std::size_t> rows(kRows);
        std::iota(rows.begin(), rows.end(), 0U);
        for (std::size_t i = kRows - 1; i > 0; --i) std::swap(rows[i], rows[rng.Below(i + 1)]);
        rows.resize(size);
        const std::vector<float> got = bench.RunRows(rows);
        for (std::size_t i = 0; i < size; ++i) {
          ASSERT_TRUE(
              SameBits(got.data() + i * bench.hidden(), alone[rows[i]].data(), bench.hidden()))
              << "row " << rows[i] << " as number " << i << " of " << size << ", hidden "
              << shape.hidden << ", seed " << kSeed;
        }
      }
    }
  }
}

TEST_P(DeviceConformance, ManyRowsAreBitEqualToTheSameRowsInPieces) {
  constexpr MoeShape kShape = {.hidden = 96, .intermediate = 64, .experts = 1, .top_k = 1};
  constexpr std::size_t kRows = 1300;
  Bench bench(*device_, kShape, kRows);

  const std::vector<float> whole = bench.RunAll();

  for (std::size_t row = 0; row < kRows; row += 100) {
    std::vector<std::size_t> piece(100);
    std::iota(piece.begin(), piece.end(), row);
    const std::vector<float> got = bench.RunRows(piece);
    ASSERT_TRUE(SameBits(got.data(), whole.data() + row * bench.hidden(), got.size())) << row;
  }
}

TEST_P(DeviceConformance, NanStaysInItsRow) {
  constexpr MoeShape kShape = {.hidden = 96, .intermediate = 80, .experts = 1, .top_k = 1};
  constexpr std::size_t kRows = 35;
  Bench bench(*device_, kShape, kRows);
  const std::vector<float> clean = bench.RunAll();
  for (const std::size_t bad : {0U, 15U, 16U, 31U, 34U}) {
    Bf16& element = bench.x()[bad * bench.hidden() + bad];
    const Bf16 before = std::exchange(element, 0x7fc1);

    const std::vector<float> got = bench.RunAll();

    element = before;
    for (std::size_t row = 0; row < kRows; ++row) {
      const std::size_t at = row * bench.hidden();
      if (row != bad) {
        ASSERT_TRUE(SameBits(got.data() + at, clean.data() + at, bench.hidden())) << row;
        continue;
      }
      for (std::size_t i = 0; i < bench.hidden(); ++i) ASSERT_TRUE(std::isnan(got[at + i])) << i;
    }
  }
}

TEST_P(DeviceConformance, InfinityStaysInItsRow) {
  constexpr MoeShape kShape = {.hidden = 65, .intermediate = 33, .experts = 1, .top_k = 1};
  Bench bench(*device_, kShape, 17);
  const std::vector<float> clean = bench.RunAll();
  bench.x()[3 * bench.hidden()] = 0x7f80;

  const std::vector<float> got = bench.RunAll();

  for (std::size_t row = 0; row < 17; ++row) {
    const std::size_t at = row * bench.hidden();
    EXPECT_EQ(row != 3, bool{SameBits(got.data() + at, clean.data() + at, bench.hidden())}) << row;
  }
}

TEST_P(DeviceConformance, TakesRowsAndOutputsAtAnyAddress) {
  constexpr MoeShape kShape = {.hidden = 72, .intermediate = 40, .experts = 1, .top_k = 1};
  constexpr std::size_t kRows = 18;
  Bench bench(*device_, kShape, kRows);
  const std::vector<float> want = bench.RunAll();
  for (std::size_t shift = 1; shift < 33; shift += 3) {
    std::vector<Bf16> moved(kRows * bench.hidden() + shift, 0x7fff);
    std::copy(bench.x().begin(), bench.x().end(), moved.begin() + static_cast<long>(shift));
    constexpr float kGuard = 12345.0F;
    std::vector<float> out(kRows * bench.hidden() + shift + 16, kGuard);
    const std::vector<std::int32_t> slots(kRows, 0);
    ExpertInput input{.rows = reinterpret_cast<const std::byte*>(moved.data() + shift),
                      .count = kRows,
                      .slots = slots.data(),
                      .out = out.data() + shift};
    const PackedExpert* expert = &bench.packed();

    RunInputs(*device_, kShape, {&expert, 1}, {&input, 1});

    ASSERT_TRUE(SameBits(out.data() + shift, want.data(), want.size())) << shift;
    for (std::size_t i = 0; i < shift; ++i) ASSERT_EQ(out[i], kGuard) << "before, " << i;
    for (std::size_t i = 0; i < 16; ++i) {
      ASSERT_EQ(out[shift + want.size() + i], kGuard) << "after, " << i;
    }
  }
}

// A layer's worth of batches of unlike sizes, empty ones included, on every number of threads.
TEST_P(DeviceConformance, ThreadsDoNotChangeABit) {
  constexpr MoeShape kShape = {.hidden = 256, .intermediate = 256, .experts = 5, .top_k = 1};
  constexpr std::size_t kSizes[] = {1, 17, 0, 40, 3};
  const auto run_all = [&](DeviceBackend& device, std::size_t experts) {
    std::vector<std::unique_ptr<Bench>> benches;
    std::vector<std::vector<const Bf16*>> rows(experts);
    std::vector<std::vector<float>> outs(experts);
    std::vector<RowsForExpert> batches;
    for (std::size_t e = 0; e < experts; ++e) {
      benches.push_back(std::make_unique<Bench>(device, kShape, 40, kSeed + e));
      for (std::size_t row = 0; row < kSizes[e]; ++row) rows[e].push_back(benches[e]->Row(row));
      outs[e].assign(kSizes[e] * 256, std::numeric_limits<float>::quiet_NaN());
      batches.push_back({.expert = &benches[e]->packed(), .rows = rows[e], .out = outs[e].data()});
    }
    RunOnDevice(device, kShape, batches);
    return outs;
  };
  for (const std::size_t experts : {1U, 2U, 5U}) {
    const auto want = run_all(*device_, experts);
    for (const int threads : {2, 3}) {
      const std::unique_ptr<DeviceBackend> device = Make(threads);

      const auto got = run_all(*device, experts);

      for (std::size_t e = 0; e < experts; ++e) {
        EXPECT_TRUE(SameBits(got[e].data(), want[e].data(), want[e].size()))
            << "expert " << e << " of " << experts << ", threads " << threads;
      }
    }
  }
}

TEST_P(DeviceConformance, TwoCallersWithTheirOwnWorkspacesDoNotDisturbEachOther) {
  constexpr MoeShape kShape = {.hidden = 256, .intermediate = 256, .experts = 1, .top_k = 1};
  constexpr int kRounds = 20;
  const std::unique_ptr<DeviceBackend> device = Make(2);
  Bench first(*device, kShape, 20, 1);
  Bench second(*device, kShape, 33, 2);
  const std::vector<float> first_want = first.RunAll();
  const std::vector<float> second_want = second.RunAll();
  std::atomic<int> wrong{0};
  const auto repeat = [&](Bench& bench, const std::vector<float>& want) {
    for (int round = 0; round < kRounds; ++round) {
      const std::vector<float> got = bench.RunAll();
      if (!SameBits(got.data(), want.data(), want.size())) wrong.fetch_add(1);
    }
  };

  std::thread other([&] { repeat(second, second_want); });
  repeat(first, first_want);
  other.join();

  EXPECT_EQ(wrong.load(), 0);
}

// One way of a quant scheme: what becomes of the rows and of h, and scales and biases of the sums.
struct SchemeCase {
  ActivationSpec inputs;
  ActivationSpec middle;
  bool affine = false;
};

// The same in double. h is BF16 before it is rounded further, as in the kernels.
std::vector<double> ReferenceOf(const ExpertWeightsView& view, std::span<const Bf16> x_row) {
  std::vector<double> x;
  for (const Bf16 bits : x_row) x.push_back(static_cast<double>(Bf16ToFloat(bits)));
  ReferenceRound(view.inputs, x);
  std::vector<double> h = testing::MatVec(view.gate, view.gate_scales, x);
  const std::vector<double> up = testing::MatVec(view.up, view.up_scales, x);
  const auto add = [](double sum, std::span<const float> bias, std::size_t i) {
    return sum + (bias.empty() ? 0.0 : static_cast<double>(bias[i]));
  };
  for (std::size_t i = 0; i < h.size(); ++i) {
    h[i] = testing::Silu(add(h[i], view.gate_bias, i)) * add(up[i], view.up_bias, i);
  }
  if (view.middle.format != ActivationFormat::kBf16) {
    ReferenceRound({}, h);
    ReferenceRound(view.middle, h);
  }
  std::vector<double> y = testing::MatVec(view.down, view.down_scales, h);
  for (std::size_t i = 0; i < y.size(); ++i) y[i] = add(y[i], view.down_bias, i);
  return y;
}

TEST_P(DeviceConformance, RoundsScalesAndAddsAsTheWeightsAskFor) {
  constexpr MoeShape kShape{.hidden = 332, .intermediate = 205, .experts = 1, .top_k = 1};
  constexpr std::size_t kRows = 70;  // more than are rounded at once
  // Stored scales are no round numbers: BF16 values would lie on ties, which FP32 breaks otherwise.
  const SchemeCase cases[] = {
      {{}, {}, true},
      {{ActivationFormat::kFp8Group}, {ActivationFormat::kFp8Group}, false},
      {{ActivationFormat::kFp8GroupPow2}, {ActivationFormat::kFp8GroupPow2}, false},
      {{ActivationFormat::kInt8Row}, {ActivationFormat::kInt8Row}, true},
      {{ActivationFormat::kNvfp4, 600.0F}, {ActivationFormat::kNvfp4, 300.0F}, true},
      {{ActivationFormat::kFp8Row}, {ActivationFormat::kFp8Row}, true},
      {{ActivationFormat::kFp8Static, 0.0123F}, {ActivationFormat::kFp8Static, 0.0217F}, false},
      {{ActivationFormat::kInt4Row}, {ActivationFormat::kInt8Row}, false}};
  const RandomExpert expert(kShape, kSeed);
  SeededRng rng(kSeed + 7);
  const std::vector<Bf16> x = GaussianBf16(kRows * 332, 1.0, rng);
  std::vector<float> biases(332);
  for (float& bias : biases) bias = static_cast<float>(testing::NextGaussian(rng));
  for (const SchemeCase& one : cases) {
    SCOPED_TRACE(ActivationFormatName(one.inputs.format));
    ExpertWeightsView view = expert.view();
    view.inputs = one.inputs;
    view.middle = one.middle;
    if (one.affine) {
      view.gate_scales = {.tensor = 0.75F};
      view.up_scales = {.tensor = 1.3F};
      view.down_scales = {.tensor = 0.01F};
      view.gate_bias = std::span(biases).first(205);
      view.up_bias = std::span(biases).subspan(100, 205);
      view.down_bias = biases;
    }
    SY_ASSERT_OK_AND_ASSIGN(const auto packed, device_->Pack(kShape, view));
    std::vector<const Bf16*> rows;
    for (std::size_t row = 0; row < kRows; ++row) rows.push_back(x.data() + row * 332);
    std::vector<float> out(kRows * 332, std::numeric_limits<float>::quiet_NaN());
    const RowsForExpert all{.expert = packed.get(), .rows = rows, .out = out.data()};
    RunOnDevice(*device_, kShape, {&all, 1});

    std::vector<double> want;
    for (std::size_t row = 0; row < kRows; ++row) {
      const std::vector<double> y = ReferenceOf(view, std::span(x).subspan(row * 332, 332));
      want.insert(want.end(), y.begin(), y.end());
    }
    EXPECT_LE(CalcDiff(out, want), kRoundedMax);
    std::vector<float> alone(332);
    const RowsForExpert last{
        .expert = packed.get(), .rows = std::span(rows).last(1), .out = alone.data()};
    RunOnDevice(*device_, kShape, {&last, 1});
    EXPECT_TRUE(SameBits(alone.data(), out.data() + (kRows - 1) * 332, 332));
  }
}

// Rows that came quantized are not rounded again; those beside them are.
TEST_P(DeviceConformance, LeavesRowsAloneThatWereRoundedOnTheirWay) {
  constexpr MoeShape kShape{.hidden = 96, .intermediate = 80, .experts = 1, .top_k = 1};
  constexpr std::size_t kRows = 67;
  const RandomExpert expert(kShape, kSeed);
  SeededRng rng(kSeed + 9);
  const std::vector<Bf16> x = GaussianBf16(kRows * 96, 1.0, rng);
  std::vector<const Bf16*> rows;
  std::vector<std::uint8_t> rounded;
  for (std::size_t row = 0; row < kRows; ++row) {
    rows.push_back(x.data() + row * 96);
    rounded.push_back(row % 3 == 0 ? 1 : 0);
  }
  const auto run = [&](ActivationFormat inputs, const std::uint8_t* flags) {
    ExpertWeightsView view = expert.view();
    view.inputs = {inputs};
    auto packed = device_->Pack(kShape, view);
    EXPECT_TRUE(packed.ok());
    std::vector<float> out(kRows * 96, std::numeric_limits<float>::quiet_NaN());
    const RowsForExpert batch{
        .expert = packed->get(), .rows = rows, .out = out.data(), .rounded = flags};
    RunOnDevice(*device_, kShape, {&batch, 1});
    return out;
  };
  const std::vector<float> plain = run(ActivationFormat::kBf16, nullptr);
  const std::vector<float> all_rounded = run(ActivationFormat::kInt4Row, nullptr);

  const std::vector<float> got = run(ActivationFormat::kInt4Row, rounded.data());

  for (std::size_t row = 0; row < kRows; ++row) {
    const std::vector<float>& want = rounded[row] != 0 ? plain : all_rounded;
    EXPECT_TRUE(SameBits(got.data() + row * 96, want.data() + row * 96, 96)) << row;
  }
}

TEST_P(DeviceConformance, RecordsTheLargestMagnitudesAndChangesNothing) {
  constexpr MoeShape kShape{.hidden = 96, .intermediate = 80, .experts = 1, .top_k = 1};
  for (const int threads : {1, 3}) {
    const auto device = Make(threads);
    Bench bench(*device, kShape, 90);
    bench.x()[40 * 96 + 5] = FloatToBf16(-57.0F);
    bench.x()[41 * 96 + 6] = 0x7f80;  // not finite: no magnitude to calibrate for
    const std::vector<float> want = bench.RunAll();
    const std::vector<double> h = bench.ReferenceMiddle(40);
    ExpertAmax amax;

    const std::vector<float> got = bench.RunAll(&amax);

    EXPECT_TRUE(SameBits(got.data(), want.data(), want.size()));
    EXPECT_EQ(amax.inputs, 57.0F);
    double largest = 0;
    for (const double value : h) largest = std::max(largest, std::fabs(value));
    EXPECT_NEAR(amax.middle, largest, largest / 100);
    amax.middle = 1e9F;
    (void)bench.RunAll(&amax);
    EXPECT_EQ(amax.middle, 1e9F) << "what was larger before stays";
  }
}

TEST_P(DeviceConformance, RefusesScalesThatAreNone) {
  constexpr MoeShape kShape{.hidden = 32, .intermediate = 16, .experts = 1, .top_k = 1};
  const RandomExpert expert(kShape, kSeed);
  for (const float wrong : {0.0F, -1.0F, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    ExpertWeightsView view = expert.view();
    view.down_scales = {.tensor = wrong};
    EXPECT_THAT(device_->Pack(kShape, view).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    view = expert.view();
    view.middle = {ActivationFormat::kFp8Static, wrong};
    EXPECT_THAT(device_->Pack(kShape, view).status(),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  }
  ExpertWeightsView view = expert.view();
  const std::vector<float> short_bias(15, 1.0F);
  view.up_bias = short_bias;
  EXPECT_THAT(device_->Pack(kShape, view).status(),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
}

TEST_P(DeviceConformance, RunsNothingWhenThereIsNothingToRun) {
  constexpr MoeShape kShape = {.hidden = 64, .intermediate = 32, .experts = 1, .top_k = 1};
  Bench bench(*device_, kShape, 1);
  float untouched = 7.0F;
  const RowsForExpert empty = {.expert = &bench.packed(), .rows = {}, .out = &untouched};

  RunOnDevice(*device_, kShape, {});
  RunOnDevice(*device_, kShape, {&empty, 1});

  EXPECT_EQ(untouched, 7.0F);
}

TEST_P(DeviceConformance, RefusesWeightsThatDoNotFitTheShape) {
  const MoeShape shape = {.hidden = 64, .intermediate = 32, .experts = 1, .top_k = 1};
  const RandomExpert expert(shape, kSeed);
  const auto bad_shape = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape);
  ExpertWeightsView cut = expert.view();
  cut.down = cut.down.subspan(1);

  EXPECT_THAT(device_->Pack(shape, cut), bad_shape);
  EXPECT_THAT(device_->Pack({.hidden = 32, .intermediate = 32}, expert.view()), bad_shape);
  EXPECT_THAT(device_->Pack({.hidden = 0, .intermediate = 32}, {}), bad_shape);
  EXPECT_THAT(device_->Pack({.hidden = -64, .intermediate = -32}, expert.view()), bad_shape);
  EXPECT_THAT(device_->MakeWorkspace({.hidden = 0, .intermediate = 32}, 4), bad_shape);
  EXPECT_THAT(device_->MakeWorkspace(shape, 0),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

INSTANTIATE_TEST_SUITE_P(Families, DeviceConformance,
                         ::testing::ValuesIn(testing::ConformanceDevices()),
                         [](const auto& device) { return device.param.name; });

}  // namespace
}  // namespace switchyard
