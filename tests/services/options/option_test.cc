#include "services/options/option.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

TEST(OptionTest, TheFlagFollowsFromTheKey) {
  std::string text = "x";
  const Option named = TextOption({.key = "pool.id", .flag = "--name", .help = "h"}, &text);
  const Option derived = TextOption({.key = "leases.stream_grace_ms", .help = "h"}, &text);

  EXPECT_EQ(named.flag, "--name");
  EXPECT_EQ(derived.flag, "--stream-grace-ms");
  EXPECT_EQ(derived.fallback, "x");
}

TEST(OptionTest, BytesTakeUnits) {
  std::int64_t bytes = 7;
  const Option option = BytesOption({.key = "memory.max", .help = "h"}, &bytes, {0, kNoEnd});

  EXPECT_EQ(option.set({"64GB"}), "");
  EXPECT_EQ(bytes, 64'000'000'000);
  EXPECT_THAT(option.get(), ElementsAre("64GB"));
  EXPECT_EQ(option.fallback, "7");
  EXPECT_EQ(option.set({"-5"}), "\"-5\" is out of range; give at least 0");
  EXPECT_EQ(option.set({"64XB"}),
            "\"64XB\" is not an amount of bytes; examples: 64GiB, 64GB, 1.5MiB, 65536");
  EXPECT_EQ(bytes, 64'000'000'000) << "a refused value changed it";
}

TEST(OptionTest, DurationsTakeUnitsAndNeedThem) {
  Duration time = std::chrono::seconds(25);
  const Option option = DurationOption({.key = "pool.leave_timeout", .help = "h"}, &time,
                                       {std::chrono::milliseconds(10), std::chrono::hours(1)});

  EXPECT_EQ(option.range, "from 10ms to 1h");
  EXPECT_EQ(option.fallback, "25s");
  EXPECT_EQ(option.set({"500ms"}), "");
  EXPECT_EQ(time, std::chrono::milliseconds(500));
  EXPECT_EQ(option.set({"5"}), "\"5\" is not a duration; examples: 20s, 1.5s, 300ms, 10m, 1h");
  EXPECT_EQ(option.set({"9ms"}), "\"9ms\" is out of range; give from 10ms to 1h");
  EXPECT_EQ(option.set({"61m"}), "\"61m\" is out of range; give from 10ms to 1h");
}

TEST(OptionTest, IntegersKeepTheirRange) {
  int threads = 2;
  std::size_t limit = 64;
  std::optional<int> port;
  const Option small = IntegerOption({.key = "a.threads", .help = "h"}, &threads, {1, 64});
  const Option large = IntegerOption({.key = "a.limit", .help = "h"}, &limit, {1, 1'000'000});
  const Option unset =
      OptionalIntegerOption({.key = "a.port", .help = "h", .unset = "none"}, &port, {0, 65535});

  EXPECT_EQ(small.set({"64"}), "");
  EXPECT_EQ(small.set({"65"}), "\"65\" is out of range; give from 1 to 64");
  EXPECT_EQ(small.set({"5000000000"}), "\"5000000000\" is out of range; give from 1 to 64");
  EXPECT_EQ(small.set({"99999999999999999999"}), "\"99999999999999999999\" is not a whole number");
  EXPECT_EQ(small.set({"1.5"}), "\"1.5\" is not a whole number");
  EXPECT_EQ(threads, 64);
  EXPECT_EQ(large.set({"1000000"}), "");
  EXPECT_EQ(limit, 1'000'000U);
  EXPECT_THAT(unset.get(), IsEmpty());
  EXPECT_EQ(unset.set({"0"}), "");
  EXPECT_EQ(port, 0);
  EXPECT_THAT(unset.get(), ElementsAre("0"));
}

TEST(OptionTest, RatiosAreFromZeroToOne) {
  double ratio = 0;
  const Option option = RatioOption({.key = "tracing.ratio", .help = "h"}, &ratio);
  EXPECT_EQ(option.fallback, "0");

  EXPECT_EQ(option.set({"0.01"}), "");
  EXPECT_EQ(ratio, 0.01);
  EXPECT_EQ(option.get(), std::vector<std::string>{"0.01"});
  EXPECT_EQ(option.set({"1"}), "");
  EXPECT_EQ(option.set({"1.5"}), "\"1.5\" is out of range; give a number from 0 to 1");
  EXPECT_EQ(option.set({"-0.1"}), "\"-0.1\" is out of range; give a number from 0 to 1");
  EXPECT_EQ(option.set({"nan"}), "\"nan\" is out of range; give a number from 0 to 1");
  EXPECT_EQ(option.set({"1%"}), "\"1%\" is not a number; examples: 0.01, 1");
  EXPECT_EQ(ratio, 1) << "a refused value changes nothing";
}

TEST(OptionTest, WordsSuggestTheNearest) {
  std::string level = "info";
  const Option option =
      WordOption({.key = "logging.level", .help = "h"}, &level, {"debug", "info", "warn"});

  EXPECT_EQ(option.range, "debug, info or warn");
  EXPECT_EQ(option.set({"wran"}), "\"wran\" is not one of debug, info or warn; did you mean warn?");
  EXPECT_EQ(option.set({"warn"}), "");
  EXPECT_EQ(level, "warn");
}

TEST(OptionTest, ListsTakeCommasAndSeveralValues) {
  std::vector<std::string> dtypes;
  const Option option =
      WordListOption({.key = "device.wire_dtypes", .help = "h"}, &dtypes, {"bf16", "fp8", "int8"});

  EXPECT_EQ(option.set({"bf16,fp8", "int8"}), "");
  EXPECT_THAT(dtypes, ElementsAre("bf16", "fp8", "int8"));
  EXPECT_NE(option.set({"bf16,fp9"}), "");
  EXPECT_THAT(dtypes, ElementsAre("bf16", "fp8", "int8"));
}

TEST(OptionTest, RelativePathsOfFilesAreResolved) {
  EXPECT_EQ(PathInFolder("a/../b", "/etc/switchyard"), "/etc/switchyard/b");
  EXPECT_EQ(PathInFolder("/a", "/etc/switchyard"), "/a");
  EXPECT_EQ(PathInFolder("", "/etc"), "");
}

}  // namespace
}  // namespace switchyard
