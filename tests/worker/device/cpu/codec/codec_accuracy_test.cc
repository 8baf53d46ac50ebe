// What a row loses on the wire, on Gaussian rows of real sizes.
#include <cstdio>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/codec/codec_scaled.h"
#include "worker/device/cpu/kernel/row_ops.h"

namespace switchyard {
namespace {

using testing::CalcDiff;
using testing::CalcDiffShifted;

constexpr std::uint64_t kSeed = 97;
constexpr std::size_t kRows = 64;

struct Bound {
  WireFormat format;
  double calc_diff;  // measured with an independent implementation
  double shifted;    // dispatch-semantics 3.6
};
constexpr double kMargin = 1.05;
constexpr Bound kBounds[] = {{kFp8Format, 3.3e-4, 9e-4},
                             {kFp8Ue8m0Format, 3.6e-4, 0.007},
                             {kInt8Format, 4.1e-5, 3e-3},
                             {kNvfp4Format, 4.6e-3, 0.007}};

std::vector<float> Floats(const std::vector<Bf16>& bits) {
  std::vector<float> values(bits.size());
  Bf16ToFloats(bits, values);
  return values;
}

// 448 * 6 over the largest magnitude, as a calibrated layer's.
float GlobalScaleOf(const std::vector<Bf16>& x) {
  Bf16 largest = 0;
  for (const Bf16 value : x) largest = std::max(largest, static_cast<Bf16>(value & 0x7fffU));
  return 448.0F * 6.0F / Bf16ToFloat(largest);
}

std::vector<const Bf16*> RowsOf(const std::vector<Bf16>& x, std::size_t hidden) {
  std::vector<const Bf16*> rows;
  for (std::size_t at = 0; at < x.size(); at += hidden) rows.push_back(x.data() + at);
  return rows;
}

// `x` after a round trip through `format`.
std::vector<Bf16> RoundTrip(const WireFormat& format, const std::vector<Bf16>& x,
                            std::size_t hidden) {
  const float global_scale = format.scale == ScaleKind::kE4m3 ? GlobalScaleOf(x) : 1.0F;
  const auto codec = ScaledCodec::Create(ChooseCodecKernels(DetectCpuFeatures()),
                                         {.format = format, .global_scale = global_scale});
  EXPECT_TRUE(codec.ok()) << codec.status();
  const std::vector<const Bf16*> rows = RowsOf(x, hidden);
  const auto width = static_cast<std::int64_t>(hidden);
  const RowBytes bytes = RowBytesOf(format, width);
  std::vector<std::byte> data(rows.size() * static_cast<std::size_t>(bytes.data));
  std::vector<std::byte> scales(rows.size() * static_cast<std::size_t>(bytes.scales));
  std::vector<Bf16> out(x.size(), 0x7fff);
  (*codec)->Encode(rows, width, data.data(), scales.data());
  (*codec)->Decode(data.data(), scales.data(), static_cast<std::int64_t>(rows.size()), width,
                   out.data());
  return out;
}

TEST(CodecAccuracyTest, RoundTripsOfGaussianRowsStayWithinTheirBounds) {
  for (const std::size_t hidden : {7168U, 2048U}) {
    for (const double deviation : {1.0, 0.02}) {
      SeededRng rng(kSeed);
      const std::vector<Bf16> x = testing::GaussianBf16(kRows * hidden, deviation, rng);
      for (const Bound& bound : kBounds) {
        const std::vector<float> want = Floats(x);
        const std::vector<float> got = Floats(RoundTrip(bound.format, x, hidden));

        const double diff = CalcDiff(got, want);
        const std::string what = std::string(WireFormatName(bound.format)) + ", hidden " +
                                 std::to_string(hidden) + ", deviation " +
                                 std::to_string(deviation) + ", seed " + std::to_string(kSeed);
        ::testing::Test::RecordProperty(what, std::to_string(diff));
        EXPECT_LE(diff, bound.calc_diff * kMargin) << what;
        EXPECT_GE(diff, bound.calc_diff * 0.7) << what << ": better than the format can be";
        EXPECT_LE(CalcDiffShifted(got, want), bound.shifted) << what;
      }
    }
  }
}

// R56: identity experts in low latency give the weighted sum of what was sent, k ascending in FP32.
TEST(CodecAccuracyTest, WeightedSumOfRowsThatCrossedTheWireStaysWithinTheLimitOfItsFormat) {
  constexpr std::size_t kHidden = 2048;
  constexpr std::size_t kTopK = 8;
  SeededRng rng(kSeed);
  const std::vector<Bf16> x = testing::GaussianBf16(16 * kHidden, 1.0, rng);
  std::vector<float> weights(kTopK);
  for (float& weight : weights) weight = static_cast<float>(rng.Uniform() + 0.1) / kTopK;
  const CpuRowOps ops(ChooseRowKernels(DetectCpuFeatures()));
  for (const Bound& bound : kBounds) {
    const std::vector<Bf16> sent = RoundTrip(bound.format, x, kHidden);
    std::vector<float> got(x.size(), 0.0F);
    std::vector<double> want(x.size(), 0.0);
    for (std::size_t at = 0; at < x.size(); at += kHidden) {
      const std::vector<const Bf16*> rows(kTopK, sent.data() + at);  // one for each expert
      ops.WeightedSumBf16(rows, weights, kHidden, got.data() + at);
      for (std::size_t i = at; i < at + kHidden; ++i) {
        for (const float weight : weights)
          want[i] += static_cast<double>(weight) * Bf16ToFloat(x[i]);
      }
    }

    EXPECT_LE(CalcDiffShifted(got, want), bound.shifted) << WireFormatName(bound.format);
    EXPECT_LE(CalcDiff(got, want), bound.calc_diff * kMargin) << WireFormatName(bound.format);
  }
}

// The scales of 3.6 leave nothing on the table: the largest value of a group comes back as itself
// but for the rounding of the scale.
TEST(CodecAccuracyTest, LargestValueOfAGroupUsesTheWholeRange) {
  SeededRng rng(kSeed);
  const std::vector<Bf16> x = testing::GaussianBf16(128, 1.0, rng);
  std::size_t largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if ((x[i] & 0x7fffU) > (x[largest] & 0x7fffU)) largest = i;
  }

  EXPECT_EQ(RoundTrip(kFp8Format, x, 128)[largest], x[largest]);
  EXPECT_EQ(RoundTrip(kInt8Format, x, 128)[largest], x[largest]);
}

}  // namespace
}  // namespace switchyard
