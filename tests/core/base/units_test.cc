#include "core/base/units.h"

#include <limits>
#include <random>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

TEST(UnitsTest, ReadsBytesWithAndWithoutUnits) {
  EXPECT_EQ(ParseBytes("0"), 0);
  EXPECT_EQ(ParseBytes("65536"), 65536);
  EXPECT_EQ(ParseBytes("9223372036854775807"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(ParseBytes("7B"), 7);
  EXPECT_EQ(ParseBytes("64GiB"), std::int64_t{64} << 30);
  EXPECT_EQ(ParseBytes("64gib"), std::int64_t{64} << 30);
  EXPECT_EQ(ParseBytes("64Gi"), std::int64_t{64} << 30);
  EXPECT_EQ(ParseBytes("64GB"), 64'000'000'000);
  EXPECT_EQ(ParseBytes("64G"), 64'000'000'000);
  EXPECT_EQ(ParseBytes("1.5MiB"), 3 << 19);
  EXPECT_EQ(ParseBytes("3kB"), 3000);
  EXPECT_EQ(ParseBytes("2TiB"), std::int64_t{2} << 40);
}

TEST(UnitsTest, RefusesWhatIsNoAmountOfBytes) {
  for (const char* text :
       {"", "-5", "+5", "GiB", "64 GiB", "64XB", "1e3", "0.5B", "1.2.3MB", ".5MB", "5.MB", "inf",
        "0x10", "9223372036854775808", "9000000TiB", "64GiBs"}) {
    EXPECT_EQ(ParseBytes(text), std::nullopt) << text;
  }
}

TEST(UnitsTest, ReadsDurations) {
  EXPECT_EQ(ParseDuration("0"), Duration{});
  EXPECT_EQ(ParseDuration("500ms"), milliseconds(500));
  EXPECT_EQ(ParseDuration("1.5s"), milliseconds(1500));
  EXPECT_EQ(ParseDuration("0.3s"), milliseconds(300));
  EXPECT_EQ(ParseDuration("1h30m"), hours(1) + minutes(30));
  EXPECT_EQ(ParseDuration("2m5s250ms7us"),
            minutes(2) + seconds(5) + milliseconds(250) + microseconds(7));
}

TEST(UnitsTest, RefusesWhatIsNoDuration) {
  for (const char* text : {"", "5", "1.5", "s", "-5s", "5 s", "5d", "5S", "1h30", "s5", "1e3s",
                           "99999999h", "5sm", "..5s"}) {
    EXPECT_EQ(ParseDuration(text), std::nullopt) << text;
  }
}

TEST(UnitsTest, PrintsTheShortestText) {
  EXPECT_EQ(BytesText(0), "0");
  EXPECT_EQ(BytesText(65537), "65537");
  EXPECT_EQ(BytesText(std::int64_t{64} << 30), "64GiB");
  EXPECT_EQ(BytesText(64'000'000'000), "64GB");
  EXPECT_EQ(DurationText(Duration{}), "0s");
  EXPECT_EQ(DurationText(seconds(90)), "90s");
  EXPECT_EQ(DurationText(minutes(10)), "10m");
  EXPECT_EQ(DurationText(milliseconds(1500)), "1500ms");
}

TEST(UnitsTest, ReadsBackEverythingThatItPrints) {
  std::mt19937_64 rng(7);
  for (int i = 0; i < 2000; ++i) {
    const auto bits = static_cast<int>(rng() % 63);
    const auto bytes = static_cast<std::int64_t>(rng() >> (1 + bits));
    EXPECT_EQ(ParseBytes(BytesText(bytes)), bytes) << BytesText(bytes);
    const microseconds time(static_cast<std::int64_t>(rng() >> (14 + bits % 40)));
    EXPECT_EQ(ParseDuration(DurationText(time)), Duration(time)) << DurationText(time);
  }
}

}  // namespace
}  // namespace switchyard
