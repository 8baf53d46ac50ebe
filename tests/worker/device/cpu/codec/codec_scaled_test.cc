#include "worker/device/cpu/codec/codec_scaled.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/format/fp8.h"
#include "core/format/nvfp4_scale.h"
#include "core/rng.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

// R53, R54: groups whose largest values double from one to the next show the order of their scales.
TEST(ScaledCodecTest, ScalesOfARowAreInTheOrderOfItsGroups) {
  constexpr std::int64_t kGroups = 8;
  for (const WireFormat& format : {kFp8Format, kFp8Ue8m0Format, kNvfp4Format}) {
    const std::int64_t hidden = kGroups * format.group;
    std::vector<Bf16> x(static_cast<std::size_t>(hidden));
    for (std::int64_t i = 0; i < hidden; ++i) {
      const float size = std::ldexp(1.0F, static_cast<int>(i / format.group));
      x[static_cast<std::size_t>(i)] = FloatToBf16(i % format.group == 0 ? size : size / 2);
    }
    const bool global = format.scale == ScaleKind::kE4m3;
    SY_ASSERT_OK_AND_ASSIGN(
        const auto codec,
        ScaledCodec::Create(kScalarCodecKernels,
                            {.format = format, .global_scale = global ? 6.0F : 1.0F}));
    const RowBytes bytes = RowBytesOf(format, hidden);
    std::vector<std::byte> data(static_cast<std::size_t>(bytes.data));
    std::vector<std::byte> scales(static_cast<std::size_t>(bytes.scales));
    const Bf16* row = x.data();

    codec->Encode({&row, 1}, hidden, data.data(), scales.data());

    const auto scale_of = [&](std::int64_t group) -> double {
      if (format.scale == ScaleKind::kF32) {
        float scale = 0;
        std::memcpy(&scale, &scales[static_cast<std::size_t>(4 * group)], sizeof(scale));
        return scale;
      }
      const auto code = std::to_integer<std::uint8_t>(scales[static_cast<std::size_t>(group)]);
      return global ? E4m3ToFloat(code) : Ue8m0ToFloat(code);
    };
    for (std::int64_t group = 1; group < kGroups; ++group) {
      EXPECT_EQ(scale_of(group), 2 * scale_of(group - 1))
          << WireFormatName(format) << " group " << group;
    }
  }
}

TEST(ScaledCodecTest, LaysRowsDenselyAfterEachOther) {
  constexpr std::int64_t kHidden = 145;  // NVFP4: 73 bytes and 10 scales
  SeededRng rng(5);
  const std::vector<Bf16> x = testing::GaussianBf16(3 * kHidden, 1.0, rng);
  const std::vector<const Bf16*> rows = {x.data() + kHidden, x.data(), x.data() + 2 * kHidden};
  for (const NamedWireFormat& named : WireFormats()) {
    if (named.format == kBf16Format) continue;
    const bool global = named.format.scale == ScaleKind::kE4m3;
    SY_ASSERT_OK_AND_ASSIGN(
        const auto codec,
        ScaledCodec::Create(kScalarCodecKernels,
                            {.format = named.format, .global_scale = global ? 672.0F : 1.0F}));
    const RowBytes bytes = RowBytesOf(named.format, kHidden);
    const auto data_bytes = static_cast<std::size_t>(bytes.data);
    const auto scale_bytes = static_cast<std::size_t>(bytes.scales);
    std::vector<std::byte> data(3 * data_bytes);
    std::vector<std::byte> scales(3 * scale_bytes);
    std::vector<Bf16> out(3 * kHidden);

    codec->Encode(rows, kHidden, data.data(), scales.data());
    codec->Decode(data.data(), scales.data(), 3, kHidden, out.data());

    for (std::size_t row = 0; row < 3; ++row) {
      std::vector<std::byte> alone_data(data_bytes);
      std::vector<std::byte> alone_scales(scale_bytes);
      std::vector<Bf16> alone_out(kHidden);
      codec->Encode({&rows[row], 1}, kHidden, alone_data.data(), alone_scales.data());
      codec->Decode(alone_data.data(), alone_scales.data(), 1, kHidden, alone_out.data());
      EXPECT_TRUE(std::equal(alone_data.begin(), alone_data.end(),
                             data.begin() + static_cast<long>(row * data_bytes)));
      EXPECT_TRUE(std::equal(alone_scales.begin(), alone_scales.end(),
                             scales.begin() + static_cast<long>(row * scale_bytes)));
      EXPECT_TRUE(std::equal(alone_out.begin(), alone_out.end(),
                             out.begin() + static_cast<long>(row * kHidden)));
    }
    EXPECT_EQ(codec->format(), named.format);
    EXPECT_EQ(codec->dtype(), named.format.dtype);
    codec->Encode({}, kHidden, nullptr, nullptr);
    codec->Decode(nullptr, nullptr, 0, kHidden, nullptr);
  }
}

TEST(ScaledCodecTest, RefusesAGlobalScaleThatCannotBe) {
  const auto bad_config = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float scale : {0.0F, -1.0F, NAN, infinity, 0x1p101F, 0x1p-101F}) {
    EXPECT_THAT(
        ScaledCodec::Create(kScalarCodecKernels, {.format = kNvfp4Format, .global_scale = scale}),
        bad_config)
        << scale;
  }
  const auto fp8 =
      ScaledCodec::Create(kScalarCodecKernels, {.format = kFp8Format, .global_scale = 2});
  EXPECT_THAT(fp8, bad_config);
  EXPECT_THAT(std::string(fp8.status().message()), HasSubstr("wire format fp8"));
  SY_EXPECT_OK(ScaledCodec::Create(kScalarCodecKernels,
                                   {.format = kNvfp4Format, .global_scale = kGlobalScaleMin})
                   .status());
  SY_EXPECT_OK(ScaledCodec::Create(kScalarCodecKernels,
                                   {.format = kNvfp4Format, .global_scale = kGlobalScaleMax})
                   .status());
}

TEST(ScaledCodecTest, RefusesAFormatThatTheKernelsDoNotHave) {
  const auto unsupported = FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported);
  const WireFormat mx = {DispatchDtype::kFp8, ScaleKind::kUe8m0, 32};

  EXPECT_THAT(ScaledCodec::Create(kScalarCodecKernels, {.format = mx}), unsupported);
  EXPECT_THAT(ScaledCodec::Create(kScalarCodecKernels, {.format = kBf16Format}), unsupported);
}

}  // namespace
}  // namespace switchyard
