#include "core/format/fp4.h"

#include <bit>

#include "gtest/gtest.h"

#include "tests/testing/table_file.h"

namespace switchyard {
namespace {

using testing::FromHex;
using testing::ReadTable;

TEST(Fp4Test, EveryE2m1CodeHasTheValueOfItsDefinition) {
  const auto table = ReadTable(SWITCHYARD_SOURCE_DIR, "e2m1_values.tsv");
  ASSERT_EQ(table.size(), 16U);
  for (const auto& row : table) {
    const auto code = static_cast<Fp4E2m1>(FromHex(row[0]));

    EXPECT_EQ(std::bit_cast<std::uint32_t>(E2m1ToFloat(code)), FromHex(row[1])) << row[0];
  }
}

// Every value, every tie, the FP32 neighbors of both, denormals, saturation, infinity and NaN.
TEST(Fp4Test, RoundsToE2m1AsTheTableSays) {
  const auto table = ReadTable(SWITCHYARD_SOURCE_DIR, "e2m1_rounding.tsv");
  ASSERT_GT(table.size(), 4000U);
  for (const auto& row : table) {
    const auto value = std::bit_cast<float>(FromHex(row[0]));

    EXPECT_EQ(FloatToE2m1(value), FromHex(row[1])) << "fp32 " << row[0] << ", " << value;
  }
}

// R88
TEST(Fp4Test, TiesGoToTheEvenCode) {
  const auto rounded = [](float value) { return E2m1ToFloat(FloatToE2m1(value)); };

  EXPECT_EQ(rounded(0.25F), 0.0F);
  EXPECT_EQ(rounded(0.75F), 1.0F);
  EXPECT_EQ(rounded(1.25F), 1.0F);
  EXPECT_EQ(rounded(1.75F), 2.0F);
  EXPECT_EQ(rounded(2.5F), 2.0F);
  EXPECT_EQ(rounded(3.5F), 4.0F);
  EXPECT_EQ(rounded(5.0F), 4.0F);
  EXPECT_EQ(rounded(-5.0F), -4.0F);
  EXPECT_EQ(E2m1ToFloat(1), 0.5F);
}

TEST(Fp4Test, DecodesTheLowFourBitsAlone) {
  for (unsigned code = 0; code < 16; ++code) {
    EXPECT_EQ(E2m1ToFloat(static_cast<Fp4E2m1>(code | 0xf0U)),
              E2m1ToFloat(static_cast<Fp4E2m1>(code)));
  }
}

}  // namespace
}  // namespace switchyard
