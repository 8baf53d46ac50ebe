#include "services/bin/coordinator_options.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/bin/sound_table.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CoordinatorOptionsTest, TheTableIsSound) {
  CoordinatorSettings settings;
  const OptionTable table = CoordinatorOptionTable(&settings);
  const testing::TempDir dir;

  testing::ExpectSoundTable(table);
  testing::ExpectPrintedIsReadBack(table, dir.Write("c.yaml", PrintOptions(table, {})));
}

TEST(CoordinatorOptionsTest, KeysReachTheCoordinator) {
  const testing::TempDir dir;
  const std::string file = dir.Write("c.yaml", R"(
network: {listen: "0.0.0.0:7000", system_port: 7001}
store: {location: "sqlite:plans.sqlite", deployments: [a.yaml], read_threads: 3}
leases: {lease_ttl: 3s, stuck_batch: 2m}
timeouts: {prepare_timeout: 1h, retry_first: 10ms}
limits: {max_deployments: 200, max_sessions: 9}
defaults: {placement: contiguous, dispatcher_output_dtype: fp8}
tracing: {ratio: 0.01, endpoint: "collector:4317"}
logging: {level: warn, format: json}
)");
  CoordinatorSettings settings;

  const auto end = ReadOptions(CoordinatorOptionTable(&settings), {"--config", file});

  ASSERT_FALSE(end) << end->text;
  EXPECT_EQ(settings.network.listen, "0.0.0.0:7000");
  EXPECT_EQ(settings.network.system_port, 7001);
  EXPECT_EQ(settings.store, absl::StrCat("sqlite:", dir.Join("plans.sqlite")));
  EXPECT_THAT(settings.deployments, ElementsAre(dir.Join("a.yaml")));
  EXPECT_EQ(settings.read_threads, 3);
  EXPECT_EQ(settings.driver.coordinator.lease_ttl, std::chrono::seconds(3));
  EXPECT_EQ(settings.driver.coordinator.stuck_batch, std::chrono::minutes(2));
  EXPECT_EQ(settings.driver.coordinator.prepare_timeout, std::chrono::hours(1));
  EXPECT_EQ(settings.driver.coordinator.retry_first, std::chrono::milliseconds(10));
  EXPECT_EQ(settings.driver.coordinator.max_deployments, 200U);
  EXPECT_EQ(settings.driver.coordinator.max_sessions, 9U);
  EXPECT_EQ(settings.driver.placement, "contiguous");
  EXPECT_EQ(settings.dispatch.dispatcher_output_dtype, "fp8");
  EXPECT_EQ(settings.driver.coordinator.tracing.ratio, 0.01);
  EXPECT_EQ(settings.driver.coordinator.tracing.endpoint, "collector:4317");
  EXPECT_EQ(settings.log.level, "warn");
  EXPECT_EQ(settings.log.format, "json");
}

TEST(CoordinatorOptionsTest, AMistakeInAFileIsNamedByItsKey) {
  const testing::TempDir dir;
  const std::string file = dir.Write("c.yaml", "defaults: {dispatcher_output_dtype: fp9}\n");
  CoordinatorSettings settings;

  const auto end = ReadOptions(CoordinatorOptionTable(&settings), {"--config", file});

  ASSERT_TRUE(end);
  EXPECT_THAT(end->text, HasSubstr("c.yaml:1: defaults.dispatcher_output_dtype: "));
  EXPECT_THAT(end->text, ::testing::Not(HasSubstr("--dispatcher-output-dtype")));
}

TEST(CoordinatorOptionsTest, TracingIsOffAndItsCollectorIsOnTheSameHost) {
  CoordinatorSettings settings;
  ASSERT_FALSE(ReadOptions(CoordinatorOptionTable(&settings), {}));
  EXPECT_FALSE(settings.driver.coordinator.tracing.on());

  ASSERT_FALSE(ReadOptions(CoordinatorOptionTable(&settings), {"--trace-ratio", "0.5"}));
  EXPECT_TRUE(settings.driver.coordinator.tracing.on());
  EXPECT_EQ(settings.driver.coordinator.tracing.endpoint, "127.0.0.1:4317");

  for (const std::vector<std::string>& wrong : {std::vector<std::string>{"--trace-ratio", "2"},
                                                {"--trace-ratio", "-1"},
                                                {"--trace-ratio", "nan"},
                                                {"--trace-ratio", "1%"},
                                                {"--trace-endpoint", "http://127.0.0.1:4318"},
                                                {"--trace-endpoint", "collector"}}) {
    EXPECT_TRUE(ReadOptions(CoordinatorOptionTable(&settings), wrong)) << wrong[1];
  }
}

TEST(CoordinatorOptionsTest, ValuesThatContradictEachOtherAreRefused) {
  const auto mistake = [](const std::vector<std::string>& words) {
    CoordinatorSettings settings;
    const auto end = ReadOptions(CoordinatorOptionTable(&settings), words);
    return end ? end->text : "";
  };

  EXPECT_THAT(mistake({"--retry-first", "9s"}),
              HasSubstr("--retry-first: timeouts.retry_first (9s) is longer than "
                        "timeouts.retry_last (5s)\n"));
  EXPECT_THAT(mistake({"--join-settle", "2s"}), HasSubstr("timeouts.join_settle_most (1s)"));
  EXPECT_THAT(mistake({"--quarantine-last", "2s"}), HasSubstr("timeouts.quarantine_first (5s)"));
  EXPECT_THAT(mistake({"--dispatcher-output-dtype", "fp9"}), HasSubstr("did you mean \"fp8\"?"));
  EXPECT_THAT(
      mistake({"--dispatcher-output-dtype", "fp8", "--deepep-dispatcher-output-dtype", "fp8"}),
      HasSubstr("is the old spelling of"));
  EXPECT_THAT(mistake({"--store", "punchcards"}), HasSubstr("names none of the stores memory, "));
  EXPECT_THAT(mistake({"--lease-ttl", "10ms"}), HasSubstr("give from 1s to 24h"));
}

}  // namespace
}  // namespace switchyard
