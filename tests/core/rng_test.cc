#include "core/rng.h"

#include <set>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

// The published first outputs of splitmix64 for seed 1234567.
TEST(RngTest, SeededStreamIsSplitmix64) {
  SeededRng rng(1234567);

  EXPECT_EQ(rng.Next(), 6457827717110365317ULL);
  EXPECT_EQ(rng.Next(), 3203168211198807973ULL);
  EXPECT_EQ(rng.Next(), 9817491932198370423ULL);
  EXPECT_EQ(rng.Next(), 4593380528125082431ULL);
  EXPECT_EQ(rng.Next(), 16408922859458223821ULL);
}

TEST(RngTest, EqualSeedsGiveEqualStreams) {
  SeededRng a(99);
  SeededRng b(99);
  SeededRng c(100);

  const std::uint64_t first = a.Next();

  EXPECT_EQ(first, b.Next());
  EXPECT_NE(first, c.Next());
}

TEST(RngTest, BelowStaysBelowAndReachesEveryValue) {
  SeededRng rng(7);
  std::set<std::uint64_t> seen;

  for (int i = 0; i < 1000; ++i) seen.insert(rng.Below(10));

  EXPECT_EQ(seen.size(), 10U);
  EXPECT_EQ(*seen.rbegin(), 9U);
}

TEST(RngTest, UniformIsInTheUnitIntervalWithTheRightMean) {
  SeededRng rng(8);
  double sum = 0;

  for (int i = 0; i < 10'000; ++i) {
    const double value = rng.Uniform();
    ASSERT_GE(value, 0.0);
    ASSERT_LT(value, 1.0);
    sum += value;
  }

  EXPECT_NEAR(sum / 10'000, 0.5, 0.02);  // seven standard errors
}

TEST(RngTest, SystemRandomnessDoesNotRepeat) {
  SystemRng rng;
  std::set<Incarnation> seen;

  for (int i = 0; i < 100; ++i) seen.insert(rng.NextId<Incarnation>());

  EXPECT_EQ(seen.size(), 100U);
}

}  // namespace
}  // namespace switchyard
