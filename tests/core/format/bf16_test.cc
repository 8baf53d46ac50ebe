#include "core/format/bf16.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"

namespace switchyard {
namespace {

constexpr std::uint32_t kPatterns = 1U << 16;

bool IsNanPattern(std::uint32_t bits) { return (bits & 0x7fffU) > 0x7f80U; }

TEST(Bf16Test, EveryPatternSurvivesARoundTrip) {
  for (std::uint32_t bits = 0; bits < kPatterns; ++bits) {
    const auto pattern = static_cast<Bf16>(bits);

    const Bf16 back = FloatToBf16(Bf16ToFloat(pattern));

    // A signalling NaN comes back quiet; its sign and payload stay.
    ASSERT_EQ(back, IsNanPattern(bits) ? (bits | 0x40U) : bits) << std::hex << bits;
    ASSERT_EQ(std::isnan(Bf16ToFloat(back)), IsNanPattern(bits)) << std::hex << bits;
  }
}

// Between two neighbors a value goes to the nearer; halfway, to the one with an even last bit.
TEST(Bf16Test, RoundsToNearestTiesToEvenBetweenAllNeighbors) {
  for (std::uint32_t bits = 0; bits < 0x7f7fU; ++bits) {
    const auto low = static_cast<Bf16>(bits);
    const auto high = static_cast<Bf16>(bits + 1);
    const double middle = (static_cast<double>(Bf16ToFloat(low)) + Bf16ToFloat(high)) / 2;
    const auto tie = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(tie), middle) << "the tie is a float, " << bits;

    ASSERT_EQ(FloatToBf16(tie), bits % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(FloatToBf16(std::nextafter(tie, 0.0F)), low) << bits;
    ASSERT_EQ(FloatToBf16(std::nextafter(tie, std::numeric_limits<float>::infinity())), high)
        << bits;
    ASSERT_EQ(FloatToBf16(-tie), FloatToBf16(tie) | 0x8000U) << bits;
  }
}

TEST(Bf16Test, OverflowGoesToInfinityAndNotToNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float largest = Bf16ToFloat(0x7f7f);

  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(FloatToBf16(std::numeric_limits<float>::lowest()), 0xff80);
  EXPECT_EQ(FloatToBf16(infinity), 0x7f80);
  EXPECT_EQ(FloatToBf16(std::nextafter(largest, infinity)), 0x7f7f);
}

TEST(Bf16Test, NanWithLowBitsOnlyStaysNan) {
  const auto nan = std::bit_cast<float>(0x7f800001U);  // its high half by itself is infinity

  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(nan))));
}

TEST(Bf16Test, SpansConvertElementByElement) {
  constexpr std::uint64_t kSeed = 11;
  SeededRng rng(kSeed);
  std::vector<float> in(257);
  for (float& value : in) value = std::bit_cast<float>(static_cast<std::uint32_t>(rng.Next()));
  std::vector<Bf16> packed(in.size(), 0xffff);
  std::vector<float> out(in.size(), std::numeric_limits<float>::quiet_NaN());

  FloatsToBf16(in, packed);
  Bf16ToFloats(packed, out);

  for (std::size_t i = 0; i < in.size(); ++i) {
    EXPECT_EQ(packed[i], FloatToBf16(in[i])) << "seed " << kSeed << " index " << i;
    EXPECT_EQ(std::bit_cast<std::uint32_t>(out[i]), static_cast<std::uint32_t>(packed[i]) << 16)
        << "seed " << kSeed << " index " << i;
  }
}

TEST(Bf16Test, FindsTheFirstRowWithANanWhateverItsSignAndPlace) {
  // 3 rows of 4 columns, 6 apart. The gaps hold NaN, which is of no row.
  std::vector<Bf16> x(3 * 6, 0x7fc0);
  for (std::size_t r = 0; r < 3; ++r) {
    const std::array<Bf16, 4> row = {0x3f80, 0x7f80, 0xff80, 0x8000};  // 1, inf, -inf, -0
    std::copy(row.begin(), row.end(), x.begin() + static_cast<std::ptrdiff_t>(r * 6));
  }
  const Bf16Rows matrix{.data = x.data(), .rows = 3, .columns = 4, .stride = 6};
  EXPECT_EQ(FirstNanRow(matrix), std::nullopt);

  x[2 * 6 + 3] = 0xff81;
  EXPECT_EQ(FirstNanRow(matrix), 2);

  x[1 * 6] = 0x7f81;
  EXPECT_EQ(FirstNanRow(matrix), 1);
  EXPECT_EQ(FirstNanRow({.data = x.data(), .rows = 0, .columns = 4, .stride = 6}), std::nullopt);
}

}  // namespace
}  // namespace switchyard
