#include "services/bin/worker_options.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/bin/sound_table.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WorkerOptionsTest, TheTableIsSound) {
  WorkerSettings settings;
  const OptionTable table = WorkerOptionTable(&settings);
  const testing::TempDir dir;

  testing::ExpectSoundTable(table);
  settings.id = "w0";
  testing::ExpectPrintedIsReadBack(table, dir.Write("w.yaml", PrintOptions(table, {})));
}

TEST(WorkerOptionsTest, KeysReachTheWorker) {
  const testing::TempDir dir;
  const std::string file = dir.Write("w.yaml", R"(
pool: {id: w3, coordinator: "node:7000", leave_timeout: 1m, leave_alone_timeout: 2m}
network: {net_devices: lo, data_ports: 20000-20009, ring_dir: rings, advertise: "me:1"}
device: {device: "cpu:compute_threads=2", wire_dtypes: [bf16, int8], busy_poll: 2ms}
memory: {weight_bytes_max: 64GiB, gateway_memory_bytes_max: 256MiB, load_threads: 3}
)");
  WorkerSettings settings;

  const auto end = ReadOptions(WorkerOptionTable(&settings), {"--config", file});

  ASSERT_FALSE(end) << end->text;
  EXPECT_EQ(settings.id, "w3");
  EXPECT_EQ(settings.coordinator, "node:7000");
  EXPECT_EQ(settings.leave_timeout, std::chrono::minutes(1));
  EXPECT_EQ(settings.leave_alone_timeout, std::chrono::minutes(2));
  EXPECT_EQ(settings.net_devices, "lo");
  EXPECT_EQ(settings.data_ports, "20000-20009");
  EXPECT_EQ(settings.ring_dir, dir.Join("rings"));
  EXPECT_EQ(settings.advertise, "me:1");
  EXPECT_EQ(settings.device, "cpu:compute_threads=2");
  EXPECT_THAT(settings.wire_dtypes, ElementsAre("bf16", "int8"));
  EXPECT_EQ(settings.busy_poll, std::chrono::milliseconds(2));
  EXPECT_EQ(settings.weight_bytes_max, std::int64_t{64} << 30);
  EXPECT_EQ(settings.gateway_memory_bytes_max, std::size_t{256} << 20);
  EXPECT_EQ(settings.load_threads, 3);
}

TEST(WorkerOptionsTest, MistakesAreRefused) {
  const auto mistake = [](std::vector<std::string> words) {
    words.insert(words.end(), {"--id", "w0"});
    WorkerSettings settings;
    const auto end = ReadOptions(WorkerOptionTable(&settings), words);
    return end ? end->text : "";
  };

  EXPECT_EQ(mistake({"--weight-bytes-max", "64GB"}), "");
  EXPECT_THAT(mistake({"--weight-bytes-max", "-5"}), HasSubstr("\"-5\" is out of range"));
  EXPECT_THAT(mistake({"--gateway-memory-bytes-max", "1MiB"}), HasSubstr("from 128MiB to"));
  EXPECT_THAT(mistake({"--coordinator", "node"}), HasSubstr("\"node\" is not \"host:port\""));
  EXPECT_THAT(mistake({"--coordinator", "node:0"}), HasSubstr("has no port"));
  EXPECT_THAT(mistake({"--data-ports", "80-90"}), HasSubstr("two ports from 1024 on"));
  EXPECT_THAT(mistake({"--wire-dtypes", "bf16,fp9"}), HasSubstr("did you mean fp8?"));
  EXPECT_THAT(mistake({"--leave-timeout", "25"}), HasSubstr("is not a duration"));
}

// As the coordinator would, which cannot say where the id is from.
TEST(WorkerOptionsTest, AnIdThatIsNoNameIsRefused) {
  WorkerSettings settings;
  const OptionTable table = WorkerOptionTable(&settings);
  for (const std::string& id : std::vector<std::string>{"a b", "w/0", std::string(129, 'w')}) {
    const auto end = ReadOptions(table, {"--id", id, "--print-config"});
    ASSERT_TRUE(end) << id;
    EXPECT_EQ(end->exit_code, kExitUsage) << id;
  }
  const auto end = ReadOptions(table, {"--id", "a b"});
  EXPECT_THAT(end->text, HasSubstr("--id: \"a b\" is no name: 1 to 128 letters"));
}

TEST(NetDevicesTest, NamesTheDevicesThatThereAre) {
  EXPECT_EQ(WhyNoNetDevices("lo"), "");
  EXPECT_EQ(WhyNoNetDevices("all"), "");
  EXPECT_EQ(WhyNoNetDevices("lo,lo"), "");
  for (const char* names : {"eth97", "lo,eth97", ""}) {
    const std::string why = WhyNoNetDevices(names);
    EXPECT_THAT(why, HasSubstr("this machine has no network device \"")) << names;
    EXPECT_THAT(why, ::testing::ContainsRegex("it has .*lo")) << names;
  }
}

}  // namespace
}  // namespace switchyard
