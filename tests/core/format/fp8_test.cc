#include "core/format/fp8.h"

#include <bit>
#include <cmath>
#include <limits>

#include "gtest/gtest.h"

#include "tests/testing/table_file.h"

namespace switchyard {
namespace {

using testing::FromHex;
using testing::ReadTable;

std::uint32_t BitsOf(float value) { return std::bit_cast<std::uint32_t>(value); }

TEST(Fp8Test, EveryE4m3CodeHasTheValueOfItsDefinition) {
  const auto table = ReadTable(SWITCHYARD_SOURCE_DIR, "e4m3_values.tsv");
  ASSERT_EQ(table.size(), 256U);
  for (const auto& row : table) {
    const auto code = static_cast<Fp8E4m3>(FromHex(row[0]));

    EXPECT_EQ(BitsOf(E4m3ToFloat(code)), FromHex(row[1])) << "code " << row[0];
  }
}

// Every value, every tie, the FP32 neighbors of both, denormals, saturation, infinity and NaN.
TEST(Fp8Test, RoundsToE4m3AsTheTableSays) {
  const auto table = ReadTable(SWITCHYARD_SOURCE_DIR, "e4m3_rounding.tsv");
  ASSERT_GT(table.size(), 5000U);
  for (const auto& row : table) {
    const auto value = std::bit_cast<float>(FromHex(row[0]));

    EXPECT_EQ(FloatToE4m3(value), FromHex(row[1])) << "fp32 " << row[0] << ", " << value;
  }
}

TEST(Fp8Test, EveryE4m3CodeSurvivesARoundTrip) {
  for (unsigned code = 0; code < 256; ++code) {
    EXPECT_EQ(FloatToE4m3(E4m3ToFloat(static_cast<Fp8E4m3>(code))), code);
  }
}

TEST(Fp8Test, E4m3SaturatesAndKeepsNan) {
  const float infinity = std::numeric_limits<float>::infinity();

  EXPECT_EQ(FloatToE4m3(449.0F), kE4m3MaxCode);
  EXPECT_EQ(FloatToE4m3(480.0F), kE4m3MaxCode);
  EXPECT_EQ(FloatToE4m3(infinity), kE4m3MaxCode);
  EXPECT_EQ(FloatToE4m3(-infinity), 0x80U | kE4m3MaxCode);
  EXPECT_EQ(E4m3ToFloat(kE4m3MaxCode), kE4m3Max);
  EXPECT_TRUE(std::isnan(E4m3ToFloat(FloatToE4m3(NAN))));
}

TEST(Fp8Test, EveryUe8m0ByteIsItsPowerOfTwo) {
  const auto table = ReadTable(SWITCHYARD_SOURCE_DIR, "ue8m0_values.tsv");
  ASSERT_EQ(table.size(), 256U);
  for (const auto& row : table) {
    const auto byte = static_cast<Ue8m0>(FromHex(row[0]));

    EXPECT_EQ(BitsOf(Ue8m0ToFloat(byte)), FromHex(row[1])) << "byte " << row[0];
  }
}

TEST(Fp8Test, RoundsUpToUe8m0AsTheTableSays) {
  const auto table = ReadTable(SWITCHYARD_SOURCE_DIR, "ue8m0_rounding.tsv");
  ASSERT_GT(table.size(), 1000U);
  for (const auto& row : table) {
    const auto value = std::bit_cast<float>(FromHex(row[0]));

    EXPECT_EQ(FloatToUe8m0RoundUp(value), FromHex(row[1])) << "fp32 " << row[0] << ", " << value;
  }
}

// R53: the amax -> byte goldens of dispatch-semantics 3.6.
TEST(Fp8Test, Ue8m0ScaleOfAnAmaxHasItsGoldenValues) {
  const auto byte_of = [](float amax) { return FloatToUe8m0RoundUp(amax / kE4m3Max); };

  EXPECT_EQ(byte_of(1.0F), 119);
  EXPECT_EQ(byte_of(3.5F), 120);
  EXPECT_EQ(byte_of(7.0F), 121);
  EXPECT_EQ(byte_of(448.0F), 127);
  EXPECT_EQ(byte_of(1000.0F), 129);
  EXPECT_EQ(byte_of(1e-4F), 105);
}

}  // namespace
}  // namespace switchyard
