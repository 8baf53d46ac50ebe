#include "worker/device/cpu/codec/activation_rounding.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/reference/activation_reference.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/machine/cpuid.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::GaussianBf16;

constexpr Bf16 kPoison = 0xa5a5;

std::vector<Bf16> Round(const CodecKernels& kernels, const ActivationSpec& spec,
                        const std::vector<Bf16>& in) {
  const auto count = static_cast<std::int64_t>(in.size());
  std::vector<std::byte> scratch(static_cast<std::size_t>(RoundingScratchBytes(count)));
  std::vector<Bf16> out(in.size() + 1, kPoison);
  RoundRow(kernels, spec, in.data(), count, scratch.data(), out.data());
  EXPECT_EQ(out.back(), kPoison) << "something beyond the row was written";
  out.pop_back();
  return out;
}

ActivationSpec SpecOf(ActivationFormat format) {
  if (format == ActivationFormat::kFp8Static) return {format, 0.0123F};
  if (format == ActivationFormat::kNvfp4) return {format, 512.5F};
  return {format, 1.0F};
}

class RoundingTest : public ::testing::TestWithParam<ActivationFormat> {};

TEST_P(RoundingTest, EqualsTheSearchForTheNearestValue) {
  SeededRng rng(11);
  for (const std::size_t count : {1U, 7U, 128U, 299U, 1024U}) {
    for (const double deviation : {1e-3, 1.0, 300.0}) {
      const std::vector<Bf16> in = GaussianBf16(count, deviation, rng);
      std::vector<double> want;
      for (const Bf16 x : in) want.push_back(static_cast<double>(Bf16ToFloat(x)));
      const double amax = testing::LargestOf(want);
      ActivationSpec spec = SpecOf(GetParam());
      if (spec.scale != 1.0F) {  // as calibration would have it
        spec.scale = static_cast<float>(GetParam() == ActivationFormat::kNvfp4 ? 448.0 * 6.0 / amax
                                                                               : amax / 448.0);
      }
      testing::ReferenceRound(spec, want);

      const std::vector<Bf16> got = Round(kScalarCodecKernels, spec, in);

      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(static_cast<double>(Bf16ToFloat(got[i])), want[i]) << i;
      }
    }
  }
}

TEST_P(RoundingTest, VectorKernelsAgreeBitForBit) {
  SeededRng rng(12);
  const std::vector<Bf16> in = GaussianBf16(777, 2.0, rng);
  const CodecKernels& fastest = ChooseCodecKernels(DetectCpuFeatures());

  EXPECT_EQ(Round(fastest, SpecOf(GetParam()), in),
            Round(kScalarCodecKernels, SpecOf(GetParam()), in));
}

TEST_P(RoundingTest, ZerosStayAndNothingComesOfThem) {
  const std::vector<Bf16> zeros(130, 0);
  EXPECT_EQ(Round(kScalarCodecKernels, SpecOf(GetParam()), zeros), zeros);
}

TEST_P(RoundingTest, ANanIsNotLost) {
  SeededRng rng(13);
  std::vector<Bf16> in = GaussianBf16(300, 1.0, rng);
  in[290] = 0x7fc1;

  const std::vector<Bf16> out = Round(kScalarCodecKernels, SpecOf(GetParam()), in);

  EXPECT_TRUE(std::isnan(Bf16ToFloat(out[290])));
}

TEST_P(RoundingTest, AgainChangesNothingOrAlmostNothing) {
  SeededRng rng(14);
  const std::vector<Bf16> in = GaussianBf16(2048, 1.0, rng);
  const std::vector<Bf16> once = Round(kScalarCodecKernels, SpecOf(GetParam()), in);

  const std::vector<Bf16> twice = Round(kScalarCodecKernels, SpecOf(GetParam()), once);

  for (std::size_t i = 0; i < in.size(); ++i) {  // a scale that BF16 rounded moves all by its ulp
    ASSERT_NEAR(Bf16ToFloat(twice[i]), Bf16ToFloat(once[i]),
                std::fabs(Bf16ToFloat(once[i])) / 64.0F)
        << i;
  }
}

TEST_P(RoundingTest, PassesItsSelfTest) {
  SY_EXPECT_OK(TestRounding(kScalarCodecKernels, GetParam()));
  SY_EXPECT_OK(TestRounding(ChooseCodecKernels(DetectCpuFeatures()), GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Formats, RoundingTest,
                         ::testing::Values(ActivationFormat::kFp8Group,
                                           ActivationFormat::kFp8GroupPow2,
                                           ActivationFormat::kInt8Row, ActivationFormat::kNvfp4,
                                           ActivationFormat::kFp8Row, ActivationFormat::kFp8Static,
                                           ActivationFormat::kInt4Row),
                         [](const auto& param) {
                           return std::string(ActivationFormatName(param.param));
                         });

void DecodeTwiceTheValue(const std::byte* data, const std::byte* scales, std::int64_t hidden,
                         float global_scale, Bf16* out) {
  kScalarCodecKernels.nvfp4.decode(data, scales, hidden, global_scale / 2, out);
}

TEST(TestRoundingTest, RefusesAWrongCodec) {
  CodecKernels wrong = kScalarCodecKernels;
  wrong.nvfp4.decode = DecodeTwiceTheValue;
  EXPECT_THAT(TestRounding(wrong, ActivationFormat::kNvfp4),
              FailsWith(absl::StatusCode::kInternal, Reason::kInternal));
  SY_EXPECT_OK(TestRounding(wrong, ActivationFormat::kInt8Row));
}

TEST(RoundRowTest, InfinitySaturatesWithAStoredScaleAndSpoilsTheRowWithAMeasuredOne) {
  std::vector<Bf16> in(20, FloatToBf16(1.0F));
  in[3] = 0x7f80;
  EXPECT_EQ(Bf16ToFloat(Round(kScalarCodecKernels, {ActivationFormat::kFp8Static, 2.0F}, in)[3]),
            896.0F);
  for (const ActivationFormat format : {ActivationFormat::kFp8Row, ActivationFormat::kInt4Row}) {
    for (const Bf16 value : Round(kScalarCodecKernels, {format}, in)) {
      EXPECT_TRUE(std::isnan(Bf16ToFloat(value)));
    }
  }
}

}  // namespace
}  // namespace switchyard
