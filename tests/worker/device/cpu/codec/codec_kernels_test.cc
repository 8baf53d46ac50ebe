// The row codecs against the encoded rows of tests/reference/number_tables.py, and the vector ones
// against the scalar ones for whatever can be enumerated.
#include "worker/device/cpu/codec/codec_kernels.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/random_tensors.h"
#include "tests/testing/table_file.h"

namespace switchyard {
namespace {

using testing::ElementsFromHex;
using testing::FromHex;

constexpr std::uint64_t kSeed = 61;
constexpr std::uint8_t kPoison = 0x5a;
constexpr Bf16 kPoisonedBf16 = 0x5a5a;

using Bytes = std::vector<std::uint8_t>;

std::byte* BytesOf(Bytes& bytes, std::size_t at) {
  return reinterpret_cast<std::byte*>(bytes.data() + at);
}

struct Encoded {
  Bytes data;
  Bytes scales;
  friend bool operator==(const Encoded&, const Encoded&) = default;
};

struct Named {
  const char* name;
  const CodecKernels* kernels;
};

// Encodes one row between poisoned bytes, which must stay; `shift` bytes off any alignment.
Encoded Encode(const CodecKernels& kernels, const WireFormat& format, float global_scale,
               const std::vector<Bf16>& row, std::size_t shift = 1) {
  const auto hidden = static_cast<std::int64_t>(row.size());
  const RowBytes bytes = RowBytesOf(format, hidden);
  const auto data_bytes = static_cast<std::size_t>(bytes.data);
  const auto scale_bytes = static_cast<std::size_t>(bytes.scales);
  Bytes data(data_bytes + shift + 64, kPoison);
  Bytes scales(scale_bytes + shift + 64, kPoison);
  FindRowCodec(kernels, format)
      ->encode(row.data(), hidden, global_scale, BytesOf(data, shift), BytesOf(scales, shift));
  const auto cut = [&](Bytes& all, std::size_t count) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i >= shift && i < shift + count) continue;
      EXPECT_EQ(all[i], kPoison) << "byte " << i << " beside a row of " << hidden;
    }
    return Bytes(all.begin() + static_cast<long>(shift),
                 all.begin() + static_cast<long>(shift + count));
  };
  return {cut(data, data_bytes), cut(scales, scale_bytes)};
}

std::vector<Bf16> Decode(const CodecKernels& kernels, const WireFormat& format, float global_scale,
                         Encoded row, std::size_t hidden) {
  std::vector<Bf16> out(hidden + 33, kPoisonedBf16);
  FindRowCodec(kernels, format)
      ->decode(BytesOf(row.data, 0), BytesOf(row.scales, 0), static_cast<std::int64_t>(hidden),
               global_scale, out.data() + 1);
  EXPECT_EQ(out[0], kPoisonedBf16);
  for (std::size_t i = hidden + 1; i < out.size(); ++i) EXPECT_EQ(out[i], kPoisonedBf16) << i;
  return {out.begin() + 1, out.begin() + 1 + static_cast<long>(hidden)};
}

std::vector<WireFormat> ScaledFormats() {
  return {kFp8Format, kFp8Ue8m0Format, kInt8Format, kNvfp4Format};
}

float GlobalScaleFor(const WireFormat& format, float global_scale) {
  return format.scale == ScaleKind::kE4m3 ? global_scale : 1.0F;
}

std::string NameOf(const ::testing::TestParamInfo<WireFormat>& format) {
  return std::string(WireFormatName(format.param));
}

const CodecKernels& Chosen() { return ChooseCodecKernels(DetectCpuFeatures()); }

// True when there are vector kernels to compare with; says why not otherwise.
bool HasVectorKernels() { return &Chosen() != &kScalarCodecKernels; }

// Encodes `row` with both kernels and decodes what comes out.
void ExpectSame(const WireFormat& format, float global_scale, const std::vector<Bf16>& row,
                const std::string& what) {
  const float scale = GlobalScaleFor(format, global_scale);
  const Encoded want = Encode(kScalarCodecKernels, format, scale, row);
  const Encoded got = Encode(Chosen(), format, scale, row);
  ASSERT_EQ(got, want) << WireFormatName(format) << ", " << what << ", seed " << kSeed;
  ASSERT_EQ(Decode(Chosen(), format, scale, want, row.size()),
            Decode(kScalarCodecKernels, format, scale, want, row.size()))
      << WireFormatName(format) << ", " << what << ", seed " << kSeed;
}

class CodecKernelsTest : public ::testing::TestWithParam<Named> {};

// Rows, codes, scales and decoded values computed in exact arithmetic: short groups, zeros,
// denormals, values that no group can scale, saturation, every tie, NaN and infinity.
TEST_P(CodecKernelsTest, EncodesAndDecodesTheRowsOfTheTable) {
  const auto table = testing::ReadTable(SWITCHYARD_SOURCE_DIR, "encoded_rows.tsv");
  std::map<std::string, int> rows_of_format;
  for (const auto& line : table) {
    const auto format = WireFormatFromName(line[0]);
    ASSERT_TRUE(format.has_value()) << line[0];
    ++rows_of_format[line[0]];
    const auto global_scale = std::bit_cast<float>(FromHex(line[1]));
    const auto row = ElementsFromHex<Bf16>(line[2]);
    const Encoded want = {ElementsFromHex<std::uint8_t>(line[3]),
                          ElementsFromHex<std::uint8_t>(line[4])};
    const std::string what = line[0] + ", hidden " + std::to_string(row.size()) + ", row number " +
                             std::to_string(rows_of_format[line[0]]);

    EXPECT_EQ(Encode(*GetParam().kernels, *format, global_scale, row), want) << what;
    EXPECT_EQ(Decode(*GetParam().kernels, *format, global_scale, want, row.size()),
              ElementsFromHex<Bf16>(line[5]))
        << what;
  }
  for (const WireFormat& format : ScaledFormats()) {
    EXPECT_GE(rows_of_format[std::string(WireFormatName(format))], 30);
  }
}

// Dispatch-semantics 3.6: zero rows come back as zeros, and their scales are those of the floor.
TEST_P(CodecKernelsTest, ZeroRowsHaveTheirOwnScales) {
  const std::vector<Bf16> zeros(130, 0);
  const CodecKernels& kernels = *GetParam().kernels;
  const float floor = 1e-4F / 448.0F;
  Bytes fp32(8);
  std::memcpy(fp32.data(), &floor, 4);
  std::memcpy(fp32.data() + 4, &floor, 4);

  EXPECT_EQ(Encode(kernels, kFp8Format, 1, zeros), (Encoded{Bytes(130, 0), fp32}));
  EXPECT_EQ(Encode(kernels, kFp8Ue8m0Format, 1, zeros), (Encoded{Bytes(130, 0), Bytes(2, 105)}));
  EXPECT_EQ(Encode(kernels, kInt8Format, 1, zeros), (Encoded{Bytes(130, 0), Bytes(4, 0)}));
  EXPECT_EQ(Encode(kernels, kNvfp4Format, 672, zeros), (Encoded{Bytes(65, 0), Bytes(9, 0)}));
  for (const WireFormat& format : ScaledFormats()) {
    const float scale = GlobalScaleFor(format, 672);
    EXPECT_EQ(Decode(kernels, format, scale, Encode(kernels, format, scale, zeros), 130), zeros);
  }
}

// A NaN or an infinity takes its own group along and no other.
TEST_P(CodecKernelsTest, NanAndInfinityPoisonTheirGroupAlone) {
  SeededRng rng(kSeed);
  const std::vector<Bf16> clean = testing::GaussianBf16(300, 1.0, rng);
  const CodecKernels& kernels = *GetParam().kernels;
  for (const WireFormat& format : ScaledFormats()) {
    const float scale = GlobalScaleFor(format, 672);
    const std::size_t group =
        format.group < 0 ? clean.size() : static_cast<std::size_t>(format.group);
    const std::vector<Bf16> want =
        Decode(kernels, format, scale, Encode(kernels, format, scale, clean), clean.size());
    for (const Bf16 bad : std::initializer_list<Bf16>{0x7f80, 0xff80, 0x7fc0, 0x7f81, 0xffff}) {
      for (const std::size_t at : {0U, 15U, 16U, 127U, 128U, 299U}) {
        std::vector<Bf16> row = clean;
        row[at] = bad;

        const std::vector<Bf16> got =
            Decode(kernels, format, scale, Encode(kernels, format, scale, row), row.size());

        for (std::size_t i = 0; i < row.size(); ++i) {
          ASSERT_EQ(got[i], i / group == at / group ? 0x7fc0 : want[i])
              << WireFormatName(format) << ", " << bad << " at " << at << ", element " << i;
        }
      }
    }
  }
}

std::vector<Named> UsableKernels() {
  std::vector<Named> all = {{"scalar", &kScalarCodecKernels}};
  if (HasVectorKernels()) all.push_back({Chosen().name, &Chosen()});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Kernels, CodecKernelsTest, ::testing::ValuesIn(UsableKernels()),
                         [](const ::testing::TestParamInfo<Named>& kernels) {
                           return kernels.param.name;
                         });

// What the vector kernels do, they do as the scalar ones: bit for bit.
class CodecBitEqualityTest : public ::testing::TestWithParam<WireFormat> {
 protected:
  void SetUp() override {
    if (!HasVectorKernels()) GTEST_SKIP() << "this CPU has no vector codec kernels";
  }
};

TEST_P(CodecBitEqualityTest, ForEveryHiddenSizeUpTo600AndSomeLargeOnes) {
  SeededRng rng(kSeed);
  std::vector<std::size_t> sizes = {2048, 2880, 4096, 7167, 7168, 7169, 8192};
  for (std::size_t hidden = 1; hidden <= 600; ++hidden) sizes.push_back(hidden);
  for (const std::size_t hidden : sizes) {
    ExpectSame(GetParam(), 672, testing::GaussianBf16(hidden, 1.0, rng), std::to_string(hidden));
  }
}

// Any 16 bits, NaN and infinity among them, more or less often.
TEST_P(CodecBitEqualityTest, ForRandomBits) {
  SeededRng rng(kSeed);
  for (int round = 0; round < 2000; ++round) {
    std::vector<Bf16> row(1 + rng.Below(400));
    const bool finite = round % 4 != 0;
    for (Bf16& value : row) {
      value = static_cast<Bf16>(rng.Next());
      if (finite && (value & 0x7f80U) == 0x7f80U) value = static_cast<Bf16>(value ^ 0x4000U);
    }
    const float global_scale = std::ldexp(1.0F + static_cast<float>(rng.Uniform()),
                                          static_cast<int>(rng.Below(199)) - 100);
    ExpectSame(GetParam(), global_scale, row, "round " + std::to_string(round));
  }
}

// Each group of its own scale, over the whole range of exponents.
TEST_P(CodecBitEqualityTest, ForEveryExponent) {
  SeededRng rng(kSeed);
  for (int exponent = -133; exponent <= 127; ++exponent) {
    std::vector<Bf16> row;
    for (int i = 0; i < 277; ++i) {
      row.push_back(
          FloatToBf16(std::ldexp(static_cast<float>(testing::NextGaussian(rng)), exponent)));
      if ((row.back() & 0x7f80U) == 0x7f80U) row.back() = 0x7f7f;
    }
    for (const float global_scale : {1.0F, 672.0F, 1e-6F, 0x1p-100F, 0x1p100F}) {
      ExpectSame(GetParam(), global_scale, row, "exponent " + std::to_string(exponent));
    }
  }
}

// Every pair of mantissas of a value and of the largest one: all 128 fractions of amax at four
// exponents (one of them that of the floor of amax), with every BF16 number of the 16 binades up to
// it and both signs. A format whose factor depends on amax alone rounds the same at every exponent.
TEST_P(CodecBitEqualityTest, ForEveryValueUnderEveryAmax) {
  const std::size_t group = GetParam().group < 0 ? 512 : static_cast<std::size_t>(GetParam().group);
  for (const Bf16 base : std::initializer_list<Bf16>{0x3f80, 0x3880, 0x2480, 0x6980}) {
    for (Bf16 amax = base; amax < base + 0x80; ++amax) {
      std::vector<Bf16> row;
      for (int below = 0; below < 16 * 128; ++below) {
        for (const Bf16 sign : std::initializer_list<Bf16>{0x0000, 0x8000}) {
          if (row.size() % group == 0) row.push_back(amax);
          row.push_back(static_cast<Bf16>((amax - below) | sign));
        }
      }
      ExpectSame(GetParam(), 672, row, "amax " + std::to_string(amax));
    }
  }
}

// Every code under every kind of scale, also those that no encoder writes.
TEST_P(CodecBitEqualityTest, WhenDecodingEveryByteUnderAnyScale) {
  const WireFormat format = GetParam();
  SeededRng rng(kSeed);
  const std::size_t hidden = 512;
  const RowBytes bytes = RowBytesOf(format, hidden);
  for (int round = 0; round < 3000; ++round) {
    Encoded row = {Bytes(static_cast<std::size_t>(bytes.data)),
                   Bytes(static_cast<std::size_t>(bytes.scales))};
    for (std::size_t i = 0; i < row.data.size(); ++i) row.data[i] = static_cast<std::uint8_t>(i);
    for (std::uint8_t& byte : row.scales) byte = static_cast<std::uint8_t>(rng.Next());
    const float scale =
        GlobalScaleFor(format, std::ldexp(1.5F, static_cast<int>(round % 199) - 100));

    ASSERT_EQ(Decode(Chosen(), format, scale, row, hidden),
              Decode(kScalarCodecKernels, format, scale, row, hidden))
        << "round " << round << ", seed " << kSeed;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CodecBitEqualityTest, ::testing::ValuesIn(ScaledFormats()),
                         NameOf);

}  // namespace
}  // namespace switchyard
