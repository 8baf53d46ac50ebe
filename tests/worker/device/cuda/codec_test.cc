// Goal: every byte that the CUDA codecs write equals what the scalar CPU codecs write, and no byte
// beside a row is touched.
// Method: encode and decode into poisoned buffers on both sides and compare the whole buffers, over
// formats, layouts, lengths and classes of inputs. The seed is in the failure.
#include "worker/device/cuda/codec.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/format/wire_format.h"
#include "tests/cuda/device_buffer.h"
#include "worker/device/cpu/codec/codec_kernels.h"

namespace switchyard::cuda {
namespace {

using testing::DeviceBuffer;

constexpr std::byte kPoison{0x5a};
constexpr std::int64_t kMargin = 256;  // poisoned bytes before and after

struct FormatCase {
  const char* name;
  RowFormat format;
  WireFormat wire;
  float global_scale;
};
const FormatCase kFormatCases[] = {
    {"bf16", RowFormat::kBf16, kBf16Format, 1.0F},
    {"fp8", RowFormat::kFp8, kFp8Format, 1.0F},
    {"fp8_ue8m0", RowFormat::kFp8Ue8m0, kFp8Ue8m0Format, 1.0F},
    {"int8", RowFormat::kInt8, kInt8Format, 1.0F},
    {"nvfp4", RowFormat::kNvfp4, kNvfp4Format, 1.0F},
    {"nvfp4_calibrated", RowFormat::kNvfp4, kNvfp4Format, 448.0F * 6.0F / 3.7F},
    {"nvfp4_least", RowFormat::kNvfp4, kNvfp4Format, 0x1p-100F},
    {"nvfp4_largest", RowFormat::kNvfp4, kNvfp4Format, 0x1p100F},
};
void PrintTo(const FormatCase& format, std::ostream* out) { *out << format.name; }

// How rows lie in memory.
struct Layout {
  const char* name;
  std::int64_t shift;    // of data, bytes
  std::int64_t padding;  // bytes between rows
  bool interleaved;      // a row's scales follow its data
};
const Layout kLayouts[] = {
    {"dense", 0, 0, false},
    {"wire rows", 0, 32, true},
    {"odd addresses", 1, 3, false},
};

enum class Values { kUnit, kAllMagnitudes, kFinite, kDenormal, kZero, kRareNan };

std::uint16_t RandomBf16(Values values, std::mt19937& random) {
  const auto bits = static_cast<std::uint16_t>(random());
  switch (values) {
    case Values::kUnit: {
      const float x = std::uniform_real_distribution<float>(-4, 4)(random);
      return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    }
    case Values::kAllMagnitudes:
      return bits;  // NaN and infinity: one in 256
    case Values::kFinite:
      return (bits & 0x7f80U) == 0x7f80U ? static_cast<std::uint16_t>(bits ^ 0x4000U) : bits;
    case Values::kDenormal:
      return bits & 0x807fU;
    case Values::kZero:
      return bits & 0x8000U;
    case Values::kRareNan:
      return random() % 1000 == 0 ? (random() % 2 == 0 ? 0x7fc1 : 0xff80)
                                  : RandomBf16(Values::kUnit, random);
  }
  return 0;
}

// Magnitudes that change from group to group: no group sees only huge numbers.
std::vector<std::uint16_t> RandomActivations(Values values, std::size_t count,
                                             std::mt19937& random) {
  std::vector<std::uint16_t> out(count);
  for (std::size_t i = 0; i < count; i++) {
    out[i] = RandomBf16(values, random);
    if (values == Values::kFinite && i / 64 % 2 == 0) out[i] = (out[i] & 0x8fffU) | 0x3000U;
  }
  return out;
}

struct Placement {
  std::int64_t data_at;
  std::int64_t data_stride;
  std::int64_t scales_at;
  std::int64_t scale_stride;
  std::int64_t bytes;
};

Placement Place(const WireFormat& wire, std::int64_t rows, std::int64_t hidden,
                const Layout& layout) {
  const RowBytes size = RowBytesOf(wire, hidden);
  const auto up = [](std::int64_t bytes, std::int64_t unit) {
    return (bytes + unit - 1) / unit * unit;
  };
  Placement at{};
  at.data_at = kMargin + layout.shift;
  if (layout.interleaved) {
    const std::int64_t data = up(size.data, 16);
    at.data_stride = data + up(size.scales, 16) + layout.padding;
    at.scales_at = at.data_at + data;
    at.scale_stride = at.data_stride;
    at.bytes = at.data_at + rows * at.data_stride + kMargin;
  } else {
    at.data_stride = size.data + layout.padding;
    at.scales_at = up(at.data_at + rows * at.data_stride + kMargin, 16);
    at.scale_stride = size.scales;
    at.bytes = at.scales_at + rows * at.scale_stride + kMargin;
  }
  return at;
}

void EncodeOnCpu(const FormatCase& format, const std::uint16_t* row, std::int64_t hidden,
                 std::byte* data, std::byte* scales) {
  if (format.format == RowFormat::kBf16) {
    std::memcpy(data, row, static_cast<std::size_t>(hidden) * 2);
    return;
  }
  FindRowCodec(kScalarCodecKernels, format.wire)
      ->encode(row, hidden, format.global_scale, data, scales);
}
void DecodeOnCpu(const FormatCase& format, const std::byte* data, const std::byte* scales,
                 std::int64_t hidden, std::uint16_t* out) {
  if (format.format == RowFormat::kBf16) {
    std::memcpy(out, data, static_cast<std::size_t>(hidden) * 2);
    return;
  }
  FindRowCodec(kScalarCodecKernels, format.wire)
      ->decode(data, scales, hidden, format.global_scale, out);
}

template <typename T>
std::string FirstDifference(const std::vector<T>& got, const std::vector<T>& wanted) {
  const auto at = std::mismatch(got.begin(), got.end(), wanted.begin());
  if (at.first == got.end()) return "";
  return "element " + std::to_string(at.first - got.begin()) + " is " +
         std::to_string(static_cast<unsigned>(*at.first)) + ", the CPU wrote " +
         std::to_string(static_cast<unsigned>(*at.second));
}

class CudaCodecTest : public ::testing::TestWithParam<FormatCase> {
 protected:
  void SetUp() override {
    if (!testing::HasDevice()) GTEST_SKIP() << "no CUDA device";
  }

  void ExpectSameEncoding(Values values, std::int64_t rows, std::int64_t hidden,
                          const Layout& layout, bool indexed) {
    const FormatCase& format = GetParam();
    std::mt19937 random(seed_++);
    const std::int64_t sources = indexed ? rows + 5 : rows;
    const std::int64_t stride = hidden + (layout.padding == 0 ? 0 : 16);
    const auto in = RandomActivations(values, static_cast<std::size_t>(sources * stride), random);
    std::vector<std::int32_t> index(static_cast<std::size_t>(rows));
    for (std::int64_t i = 0; i < rows; i++) {
      index[static_cast<std::size_t>(i)] =
          static_cast<std::int32_t>(indexed ? static_cast<std::int64_t>(random()) % sources : i);
    }
    const Placement at = Place(format.wire, rows, hidden, layout);
    std::vector<std::byte> wanted(static_cast<std::size_t>(at.bytes), kPoison);
    for (std::int64_t i = 0; i < rows; i++) {
      EncodeOnCpu(format, in.data() + index[static_cast<std::size_t>(i)] * stride, hidden,
                  wanted.data() + at.data_at + i * at.data_stride,
                  wanted.data() + at.scales_at + i * at.scale_stride);
    }

    const DeviceBuffer<std::uint16_t> source(in);
    const DeviceBuffer<std::int32_t> list(index);
    DeviceBuffer<std::byte> out(at.bytes);
    out.Fill(static_cast<int>(kPoison));
    const cudaError_t error = EncodeRows(
        format.format, {source.get(), indexed ? list.get() : nullptr, rows, hidden, stride},
        format.global_scale,
        {out.get() + at.data_at, out.get() + at.scales_at, at.data_stride, at.scale_stride},
        nullptr);

    ASSERT_EQ(error, cudaSuccess);
    ASSERT_EQ(FirstDifference(out.ToHost(), wanted), "")
        << format.name << ", " << layout.name << ", rows " << rows << ", hidden " << hidden
        << ", values " << static_cast<int>(values) << ", seed " << seed_ - 1;
  }

  // `bytes`: any, or what an encoder writes.
  void ExpectSameDecoding(std::int64_t rows, std::int64_t hidden, const Layout& layout,
                          bool any_bytes) {
    const FormatCase& format = GetParam();
    std::mt19937 random(seed_++);
    const Placement at = Place(format.wire, rows, hidden, layout);
    std::vector<std::byte> in(static_cast<std::size_t>(at.bytes));
    for (std::byte& byte : in) byte = static_cast<std::byte>(random());
    if (!any_bytes) {
      const auto row = RandomActivations(Values::kUnit, static_cast<std::size_t>(hidden), random);
      for (std::int64_t i = 0; i < rows; i++) {
        EncodeOnCpu(format, row.data(), hidden, in.data() + at.data_at + i * at.data_stride,
                    in.data() + at.scales_at + i * at.scale_stride);
      }
    }
    const std::int64_t stride = hidden + (layout.shift == 0 ? 0 : 3);
    const std::uint16_t poison = 0x5a5a;
    std::vector<std::uint16_t> wanted(static_cast<std::size_t>(rows * stride + 64), poison);
    for (std::int64_t i = 0; i < rows; i++) {
      DecodeOnCpu(format, in.data() + at.data_at + i * at.data_stride,
                  in.data() + at.scales_at + i * at.scale_stride, hidden,
                  wanted.data() + 32 + i * stride);
    }

    const DeviceBuffer<std::byte> source(in);
    DeviceBuffer<std::uint16_t> out(static_cast<std::int64_t>(wanted.size()));
    out.Fill(static_cast<int>(kPoison));
    const cudaError_t error = DecodeRows(
        format.format,
        {source.get() + at.data_at, source.get() + at.scales_at, at.data_stride, at.scale_stride},
        format.global_scale, {out.get() + 32, rows, hidden, stride}, nullptr);

    ASSERT_EQ(error, cudaSuccess);
    ASSERT_EQ(FirstDifference(out.ToHost(), wanted), "")
        << format.name << ", " << layout.name << ", rows " << rows << ", hidden " << hidden
        << ", any bytes " << any_bytes << ", seed " << seed_ - 1;
  }

  unsigned seed_ = 1;
};

constexpr std::int64_t kHidden[] = {1,   7,   16,   17,   100,  128,  129,
                                    200, 768, 2048, 4104, 7168, 8208, 16400};

TEST_P(CudaCodecTest, EncodesAsTheCpuForEveryClassOfValues) {
  for (const Values values : {Values::kUnit, Values::kAllMagnitudes, Values::kFinite,
                              Values::kDenormal, Values::kZero, Values::kRareNan}) {
    for (const Layout& layout : kLayouts) {
      for (const std::int64_t hidden : kHidden) {
        ASSERT_NO_FATAL_FAILURE(ExpectSameEncoding(values, 5, hidden, layout, hidden % 2 == 0));
      }
    }
  }
}

TEST_P(CudaCodecTest, EncodesAnyNumberOfRows) {
  for (const std::int64_t rows : {1, 2, 3, 33, 127, 1025}) {
    ASSERT_NO_FATAL_FAILURE(ExpectSameEncoding(Values::kFinite, rows, 2048, kLayouts[1], true));
  }
  ASSERT_NO_FATAL_FAILURE(
      ExpectSameEncoding(Values::kAllMagnitudes, 131072, 16, kLayouts[0], true));
}

TEST_P(CudaCodecTest, DecodesAnyBytesAsTheCpu) {
  for (const Layout& layout : kLayouts) {
    for (const std::int64_t hidden : kHidden) {
      ASSERT_NO_FATAL_FAILURE(ExpectSameDecoding(7, hidden, layout, true));
      ASSERT_NO_FATAL_FAILURE(ExpectSameDecoding(3, hidden, layout, false));
    }
  }
  ASSERT_NO_FATAL_FAILURE(ExpectSameDecoding(70000, 32, kLayouts[0], true));
}

TEST_P(CudaCodecTest, NoRowsTouchNothing) {
  const EncodedRows none{};
  EXPECT_EQ(EncodeRows(GetParam().format, {}, 1, none, nullptr), cudaSuccess);
  EXPECT_EQ(DecodeRows(GetParam().format, none, 1, {}, nullptr), cudaSuccess);
}

INSTANTIATE_TEST_SUITE_P(Formats, CudaCodecTest, ::testing::ValuesIn(kFormatCases),
                         [](const auto& test) { return std::string(test.param.name); });

// Needs no device: refusals come before the launch.
TEST(CudaCodecArgumentsTest, RefusesImpossibleLayouts) {
  alignas(16) std::byte bytes[256];
  std::uint16_t values[64];
  const GatheredRows in = {values, nullptr, 1, 64, 64};
  const auto encode = [&](const GatheredRows& rows, const EncodedRows& out) {
    return EncodeRows(RowFormat::kFp8, rows, 1, out, nullptr);
  };

  EXPECT_EQ(encode({values, nullptr, 1, 64, 63}, {bytes, bytes + 64, 64, 4}),
            cudaErrorInvalidValue);
  EXPECT_EQ(encode({values, nullptr, 1, 0, 64}, {bytes, bytes + 64, 64, 4}), cudaErrorInvalidValue);
  EXPECT_EQ(encode({values, nullptr, -1, 64, 64}, {bytes, bytes + 64, 64, 4}),
            cudaErrorInvalidValue);
  EXPECT_EQ(encode(in, {bytes, bytes + 64, 63, 4}), cudaErrorInvalidValue);
  EXPECT_EQ(encode(in, {bytes, bytes + 65, 64, 4}), cudaErrorInvalidValue);
  EXPECT_EQ(encode(in, {bytes, nullptr, 64, 4}), cudaErrorInvalidValue);
  EXPECT_EQ(encode(in, {nullptr, bytes, 64, 4}), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace switchyard::cuda
