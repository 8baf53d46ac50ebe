#include "services/grpc/line_limit.h"

#include <chrono>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

constexpr TimePoint kBegin{std::chrono::hours(1)};

// How many of so many lines of one place are written at once.
int Written(LineLimit& limit, int lines, TimePoint now) {
  int written = 0;
  for (int i = 0; i < lines; ++i) written += limit.Admit("a.cc", 7, now).has_value() ? 1 : 0;
  return written;
}

TEST(LineLimitTest, AFloodHasAFewLinesInEachPeriod) {
  LineLimit limit;
  int written = 0;
  for (int second = 0; second < 60; ++second) {
    written += Written(limit, 1000, kBegin + std::chrono::seconds(second));
  }
  EXPECT_EQ(written, 6 * LineLimit::kLinesInPeriod);
}

TEST(LineLimitTest, TheNextLineCountsThoseThatWereLeftOut) {
  LineLimit limit;
  EXPECT_EQ(limit.Admit("a.cc", 7, kBegin), 0U);
  EXPECT_EQ(Written(limit, 100, kBegin), LineLimit::kLinesInPeriod - 1);

  EXPECT_EQ(limit.Admit("a.cc", 7, kBegin + LineLimit::kPeriod), 101U - LineLimit::kLinesInPeriod);
  EXPECT_EQ(limit.Admit("a.cc", 7, kBegin + LineLimit::kPeriod), 0U);
}

// Otherwise a flood would hide what else goes wrong.
TEST(LineLimitTest, AnotherPlaceHasItsOwnLines) {
  LineLimit limit;
  Written(limit, 1000, kBegin);
  int others = 0;
  for (int line = 100; line < 110; ++line) others += limit.Admit("b.cc", line, kBegin) ? 1 : 0;
  // Each of the ten shares the lines of the flood with a chance of 1 in 64.
  EXPECT_GE(others, 5);
}

TEST(LineLimitTest, LinesThatAreFarApartAreAllWritten) {
  LineLimit limit;
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(limit.Admit("a.cc", 7, kBegin + i * LineLimit::kPeriod), 0U);
  }
}

}  // namespace
}  // namespace switchyard
