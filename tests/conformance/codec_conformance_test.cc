// What every codec of every device must do, whatever its format: rows stay apart, nothing beside
// them is touched, nothing is allocated. A format that a device does not have is skipped, with the
// reason printed.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <ostream>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/allocation_counter.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/codec/codec_bf16.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/registry/device_registry.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::GaussianBf16;

constexpr std::uint64_t kSeed = 73;
constexpr std::byte kPoison{0x5a};
constexpr Bf16 kPoisonedBf16 = 0x5a5a;
constexpr float kGlobalScale = 672.0F;  // of a tensor whose largest magnitude is 4

absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeCpu() { return MakeDevice("cpu"); }
absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeCpuWithScalarCodecs() {
  return CpuBackend::CreateFrom({.family = &kPortableFamily,
                                 .row_kernels = &kPortableRowKernels,
                                 .codec_kernels = &kScalarCodecKernels,
                                 .bf16 = std::make_unique<Bf16Codec>()});
}

struct Maker {
  const char* name;
  absl::StatusOr<std::unique_ptr<DeviceBackend>> (*make)();
};
void PrintTo(const Maker& maker, std::ostream* out) { *out << maker.name; }

// Rows of one width on the wire.
struct Wire {
  std::vector<std::byte> data;
  std::vector<std::byte> scales;
  friend bool operator==(const Wire&, const Wire&) = default;
};

class CodecConformance : public ::testing::TestWithParam<std::tuple<Maker, NamedWireFormat>> {
 protected:
  void SetUp() override {
    format_ = std::get<1>(GetParam()).format;
    auto device = std::get<0>(GetParam()).make();
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = std::move(device).value();
    const bool global = format_.scale == ScaleKind::kE4m3;
    auto codec =
        device_->MakeCodec({.format = format_, .global_scale = global ? kGlobalScale : 1.0F});
    if (absl::IsUnimplemented(codec.status())) GTEST_SKIP() << codec.status();
    ASSERT_TRUE(codec.ok()) << codec.status();
    codec_ = std::move(codec).value();
  }

  Wire Encode(const std::vector<const Bf16*>& rows, std::int64_t hidden) const {
    const RowBytes bytes = RowBytesOf(format_, hidden);
    Wire wire = {std::vector<std::byte>(rows.size() * static_cast<std::size_t>(bytes.data)),
                 std::vector<std::byte>(rows.size() * static_cast<std::size_t>(bytes.scales))};
    AsHostCodec(*codec_).Encode(rows, hidden, wire.data.data(), wire.scales.data());
    return wire;
  }
  std::vector<Bf16> Decode(const Wire& wire, std::size_t rows, std::int64_t hidden) const {
    std::vector<Bf16> out(rows * static_cast<std::size_t>(hidden), kPoisonedBf16);
    AsHostCodec(*codec_).Decode(wire.data.data(), wire.scales.data(),
                                static_cast<std::int64_t>(rows), hidden, out.data());
    return out;
  }
  static std::vector<const Bf16*> RowsOf(const std::vector<Bf16>& x, std::size_t hidden) {
    std::vector<const Bf16*> rows;
    for (std::size_t at = 0; at < x.size(); at += hidden) rows.push_back(x.data() + at);
    return rows;
  }

  WireFormat format_;
  std::unique_ptr<DeviceBackend> device_;
  std::unique_ptr<Codec> codec_;
};

TEST_P(CodecConformance, IsOfTheFormatThatWasAskedFor) {
  EXPECT_EQ(codec_->format(), format_);
  EXPECT_EQ(codec_->dtype(), format_.dtype);
}

// Half a step of the coarsest codes, as a part of the largest magnitude of a row.
double ErrorMax(const WireFormat& format) {
  if (format == kBf16Format) return 0;
  if (format == kInt8Format) return 0.5 / 127 + 0.004;  // and the rounding to BF16
  if (format.dtype == DispatchDtype::kFp8) return format.scale == ScaleKind::kF32 ? 0.04 : 0.08;
  return 0.25;
}

TEST_P(CodecConformance, TakesAnyHiddenFromOne) {
  SeededRng rng(kSeed);
  std::vector<std::size_t> sizes = {127, 128, 129, 255, 256, 257, 383, 2880, 7168, 8192, 8193};
  for (std::size_t hidden = 1; hidden <= 70; ++hidden) sizes.push_back(hidden);
  for (const std::size_t hidden : sizes) {
    const std::vector<Bf16> x = GaussianBf16(3 * hidden, 0.9, rng);
    const auto width = static_cast<std::int64_t>(hidden);

    const std::vector<Bf16> got = Decode(Encode(RowsOf(x, hidden), width), 3, width);

    for (std::size_t row = 0; row < 3; ++row) {
      double largest = 0;
      for (std::size_t i = row * hidden; i < (row + 1) * hidden; ++i) {
        largest = std::max(largest, std::abs(static_cast<double>(Bf16ToFloat(x[i]))));
      }
      for (std::size_t i = row * hidden; i < (row + 1) * hidden; ++i) {
        const double error = std::abs(static_cast<double>(Bf16ToFloat(got[i])) - Bf16ToFloat(x[i]));
        ASSERT_LE(error, ErrorMax(format_) * largest)
            << "hidden " << hidden << ", row " << row << ", element " << i - row * hidden;
      }
    }
  }
}

// Rows from all over a matrix, each at a distance of its own, with repeats.
TEST_P(CodecConformance, GathersStridedRowsInTheOrderGiven) {
  SeededRng rng(kSeed);
  for (const std::size_t hidden : {1U, 17U, 130U, 512U}) {
    const auto width = static_cast<std::int64_t>(hidden);
    const std::size_t stride = hidden + 1 + rng.Below(40);
    const std::vector<Bf16> x = GaussianBf16(20 * stride + 16, 1.0, rng);
    std::vector<const Bf16*> rows;
    for (int i = 0; i < 33; ++i) {
      rows.push_back(x.data() + rng.Below(20) * stride + rng.Below(2));
    }

    const Wire all = Encode(rows, width);

    const RowBytes bytes = RowBytesOf(format_, width);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      const std::vector<Bf16> dense(rows[row], rows[row] + hidden);
      const Wire alone = Encode({dense.data()}, width);
      ASSERT_TRUE(std::equal(alone.data.begin(), alone.data.end(),
                             all.data.begin() + static_cast<long>(row) * bytes.data))
          << "hidden " << hidden << ", row " << row;
      ASSERT_TRUE(std::equal(alone.scales.begin(), alone.scales.end(),
                             all.scales.begin() + static_cast<long>(row) * bytes.scales))
          << "hidden " << hidden << ", row " << row;
    }
  }
}

// R127: exactly the bytes of RowBytesOf are written, at any address.
TEST_P(CodecConformance, WritesItsRowsAndNothingBesideThemAtAnyAddress) {
  constexpr std::size_t kRows = 3;
  constexpr std::size_t kBeyond = 80;
  SeededRng rng(kSeed);
  const auto expect_poison = [](const auto& buffer, std::size_t begin, std::size_t end,
                                auto poison) {
    for (std::size_t i = 0; i < buffer.size(); ++i) {
      if (i >= begin && i < end) continue;
      ASSERT_EQ(buffer[i], poison) << "at " << i << " of " << end;
    }
  };
  for (const std::size_t hidden : {1U, 15U, 33U, 131U, 300U}) {
    const auto width = static_cast<std::int64_t>(hidden);
    const std::vector<Bf16> x = GaussianBf16(kRows * hidden + 1, 1.0, rng);
    std::vector<const Bf16*> rows;
    for (std::size_t i = 0; i < kRows; ++i) rows.push_back(x.data() + 1 + i * hidden);
    const Wire want = Encode(rows, width);
    const std::vector<Bf16> want_out = Decode(want, kRows, width);
    for (std::size_t shift = 0; shift < 65; shift += shift < 8 ? 1 : 19) {
      std::vector<std::byte> data(want.data.size() + shift + kBeyond, kPoison);
      std::vector<std::byte> scales(want.scales.size() + shift + kBeyond, kPoison);
      std::vector<Bf16> out(want_out.size() + shift + kBeyond, kPoisonedBf16);

      AsHostCodec(*codec_).Encode(rows, width, data.data() + shift, scales.data() + shift);
      AsHostCodec(*codec_).Decode(data.data() + shift, scales.data() + shift, kRows, width,
                                  out.data() + shift);

      const auto from = static_cast<long>(shift);
      ASSERT_TRUE(std::equal(want.data.begin(), want.data.end(), data.begin() + from));
      ASSERT_TRUE(std::equal(want.scales.begin(), want.scales.end(), scales.begin() + from));
      ASSERT_TRUE(std::equal(want_out.begin(), want_out.end(), out.begin() + from));
      expect_poison(data, shift, shift + want.data.size(), kPoison);
      expect_poison(scales, shift, shift + want.scales.size(), kPoison);
      expect_poison(out, shift, shift + want_out.size(), kPoisonedBf16);
    }
  }
}

TEST_P(CodecConformance, EveryByteOfARowIsWritten) {
  SeededRng rng(kSeed);
  for (const std::size_t hidden : {1U, 31U, 257U}) {
    const auto width = static_cast<std::int64_t>(hidden);
    const std::vector<Bf16> x = GaussianBf16(hidden, 1.0, rng);
    const Wire zeroed = Encode({x.data()}, width);
    Wire poisoned = {std::vector<std::byte>(zeroed.data.size(), kPoison),
                     std::vector<std::byte>(zeroed.scales.size(), kPoison)};
    const Bf16* row = x.data();

    AsHostCodec(*codec_).Encode({&row, 1}, width, poisoned.data.data(), poisoned.scales.data());

    EXPECT_EQ(poisoned, zeroed) << "hidden " << hidden;
  }
}

// No format may lose a NaN or an infinity, nor let it into another row.
TEST_P(CodecConformance, WhatIsNotFiniteShowsAndStaysInItsRow) {
  constexpr std::size_t kHidden = 300;
  SeededRng rng(kSeed);
  std::vector<Bf16> x = GaussianBf16(5 * kHidden, 1.0, rng);
  const std::vector<Bf16> clean = Decode(Encode(RowsOf(x, kHidden), kHidden), 5, kHidden);
  for (const unsigned bad : {0x7fc1U, 0xffffU, 0x7f80U, 0xff80U}) {
    for (const std::size_t at : {0U, 127U, 299U}) {
      const Bf16 before = std::exchange(x[2 * kHidden + at], static_cast<Bf16>(bad));

      const std::vector<Bf16> got = Decode(Encode(RowsOf(x, kHidden), kHidden), 5, kHidden);

      x[2 * kHidden + at] = before;
      EXPECT_FALSE(std::isfinite(Bf16ToFloat(got[2 * kHidden + at]))) << bad << " at " << at;
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (i / kHidden == 2) continue;
        ASSERT_EQ(got[i], clean[i]) << "element " << i;
      }
    }
  }
}

TEST_P(CodecConformance, AllocatesNothing) {
  constexpr std::size_t kHidden = 2880;
  SeededRng rng(kSeed);
  const std::vector<Bf16> x = GaussianBf16(4 * kHidden, 1.0, rng);
  const std::vector<const Bf16*> rows = RowsOf(x, kHidden);
  Wire wire = Encode(rows, kHidden);
  std::vector<Bf16> out(x.size());
  const std::uint64_t before = testing::AllocationsOfThisThread();

  AsHostCodec(*codec_).Encode(rows, kHidden, wire.data.data(), wire.scales.data());
  AsHostCodec(*codec_).Decode(wire.data.data(), wire.scales.data(), 4, kHidden, out.data());

  EXPECT_EQ(testing::AllocationsOfThisThread(), before);
  EXPECT_GT(before, 0) << "the counter counts nothing";
}

TEST_P(CodecConformance, TwoThreadsMayShareOne) {
  constexpr std::size_t kHidden = 520;
  SeededRng rng(kSeed);
  const std::vector<Bf16> first = GaussianBf16(9 * kHidden, 1.0, rng);
  const std::vector<Bf16> second = GaussianBf16(9 * kHidden, 5.0, rng);
  std::atomic<int> wrong{0};
  const auto repeat = [&](const std::vector<Bf16>& x) {
    const Wire want = Encode(RowsOf(x, kHidden), kHidden);
    const std::vector<Bf16> want_out = Decode(want, 9, kHidden);
    for (int round = 0; round < 50; ++round) {
      const Wire wire = Encode(RowsOf(x, kHidden), kHidden);
      if (wire != want || Decode(wire, 9, kHidden) != want_out) wrong.fetch_add(1);
    }
  };

  std::thread other([&] { repeat(second); });
  repeat(first);
  other.join();

  EXPECT_EQ(wrong.load(), 0);
}

TEST_P(CodecConformance, EncodesNoRows) {
  AsHostCodec(*codec_).Encode({}, 256, nullptr, nullptr);
  AsHostCodec(*codec_).Decode(nullptr, nullptr, 0, 256, nullptr);
}

TEST_P(CodecConformance, OutlivesItsDevice) {
  SeededRng rng(kSeed);
  const std::vector<Bf16> x = GaussianBf16(200, 1.0, rng);
  const Wire before = Encode({x.data()}, 200);

  device_.reset();

  EXPECT_EQ(Encode({x.data()}, 200), before);
}

TEST_P(CodecConformance, DeviceRefusesFormatsThatNobodyHas) {
  const WireFormat odd = {DispatchDtype::kFp8, ScaleKind::kF32, 7};

  EXPECT_THAT(device_->MakeCodec({.format = odd}),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
}

INSTANTIATE_TEST_SUITE_P(
    Codecs, CodecConformance,
    ::testing::Combine(::testing::Values(Maker{"cpu", MakeCpu},
                                         Maker{"cpu_scalar", MakeCpuWithScalarCodecs}),
                       ::testing::ValuesIn(std::vector<NamedWireFormat>(WireFormats().begin(),
                                                                        WireFormats().end()))),
    [](const ::testing::TestParamInfo<std::tuple<Maker, NamedWireFormat>>& codec) {
      return std::string(std::get<0>(codec.param).name) + "_" + std::get<1>(codec.param).name;
    });

}  // namespace
}  // namespace switchyard
