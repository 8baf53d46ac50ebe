// What the programs log: JSON where no terminal is, with ids; nothing above info in a normal life;
// a failed staging where it failed; lines of libraries in the same stream.
#include <csignal>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tests/e2e/batch.h"
#include "tests/e2e/checkpoint_edit.h"
#include "tests/e2e/processes.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::Batch;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::ReadBytes;
using testing::RunStep;
using Json = nlohmann::json;

constexpr std::int32_t kLayer = 0;

// The lines of a log, each of which has to be an object with the members that all have.
std::vector<Json> Lines(const std::string& log) {
  std::vector<Json> lines;
  for (const absl::string_view text : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    Json line = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
    EXPECT_TRUE(line.is_object()) << text;
    if (!line.is_object()) continue;
    EXPECT_THAT(line.value("ts", ""),
                MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{3}[+-][0-9:]{5}"));
    EXPECT_FALSE(line.value("process", "").empty()) << text;
    EXPECT_FALSE(line.value("msg", "").empty()) << text;
    EXPECT_THAT(line.value("level", ""), MatchesRegex("debug|info|warn|error")) << text;
    lines.push_back(std::move(line));
  }
  return lines;
}

class LogsTest : public testing::Processes {
 protected:
  void DeployWithLogs(const std::string& level) {
    LocalDeploymentOptions options;
    options.coordinator_flags = {"--log-format", "json", "--log-level", level};
    options.worker_flags = options.coordinator_flags;
    Deploy(2, std::move(options));
  }
  [[nodiscard]] std::string LogOf(const std::string& process) const {
    return ReadBytes(absl::StrCat(deployment_->directory(), "/", process, ".log"));
  }
  // Opens a session, computes and closes it. Returns its grant.
  SessionGrant Compute(const std::string& transport) {
    auto client = Connect(transport);
    SY_EXPECT_OK(client);
    auto session = (*client)->OpenWhenReady({}, testing::kReadyTimeout);
    SY_EXPECT_OK(session);
    Batch batch(3, 17);
    SY_EXPECT_OK(RunStep(**session, batch, kLayer));
    auto grant = (*session)->Grant();
    SY_EXPECT_OK(grant);
    return *grant;
  }
};

// Workers join, a client computes over each path, a worker leaves: at debug, so that
// every line is seen.
TEST_F(LogsTest, ANormalLifeIsJsonWithIdsAndWithoutWarnings) {
  DeployWithLogs("debug");
  const SessionGrant direct = Compute("auto");
  Compute("gateway");
  deployment_->worker_process(1).Signal(SIGTERM);
  SY_ASSERT_OK(deployment_->worker_process(1).Wait(testing::kReadyTimeout).status());

  std::map<std::string, int> levels;
  std::string all;
  bool epoch = false;
  std::set<std::string> know_session;
  for (const char* process : {"coordinator", "w0", "w1"}) {
    const std::string log = LogOf(process);
    all += log;
    for (const Json& line : Lines(log)) {
      ++levels[line["level"]];
      EXPECT_NE(line["level"], "warn") << line;
      EXPECT_NE(line["level"], "error") << line;
      epoch |= line.value("deployment", "") == "local" && line.value("epoch", 0) >= 1;
      if (line.value("session", "") == ToHex(direct.session)) know_session.insert(process);
    }
  }
  EXPECT_GT(levels["debug"], 0);
  EXPECT_GT(levels["info"], 0);
  EXPECT_TRUE(epoch) << all;
  EXPECT_THAT(know_session, ::testing::ElementsAre("coordinator", "w0", "w1")) << all;
}

TEST_F(LogsTest, ALevelLeavesOutWhatIsBelowIt) {
  DeployWithLogs("warn");
  Compute("auto");

  for (const char* process : {"coordinator", "w0", "w1"}) EXPECT_EQ(LogOf(process), "") << process;
}

// UCX would write to standard output, where the address is read from.
TEST_F(LogsTest, LinesOfUcxAreInTheLog) {
  DeployWithLogs("debug");
  Compute("tcp");

  bool ucx = false;
  for (const char* process : {"w0", "w1"}) {
    for (const Json& line : Lines(LogOf(process))) ucx |= line["process"] == "ucx";
  }
  EXPECT_TRUE(ucx);
}

// Whoever looks at the machine whose disk is broken finds the reason there.
TEST_F(LogsTest, AWorkerThatCannotLoadSaysWhichTensorAndWhy) {
  const testing::TempDir dir;
  const std::string model = dir.Join("model");
  std::filesystem::copy(testing::kShippedModel, model);
  const std::string file = dir.Write("d.yaml", "name: local\ncheckpoint: model\n");
  const std::string bin = absl::StrCat(testing::kBinDir, "/switchyard-");
  SY_ASSERT_OK_AND_ASSIGN(ChildProcess coordinator,
                          ChildProcess::Spawn({bin + "coordinator", "--listen", "127.0.0.1:0",
                                               "--store", "memory", "--deployment", file},
                                              dir.Join("coordinator.log")));
  SY_ASSERT_OK_AND_ASSIGN(const std::string address,
                          coordinator.WaitForLine("ready ", testing::kReadyTimeout));
  // The coordinator has hashed it; the worker finds something else.
  const std::string tensor = "model.layers.1.mlp.experts.3.up_proj.weight";
  testing::ScaleTensor(model + "/model.safetensors", tensor, 2.0F);
  SY_ASSERT_OK_AND_ASSIGN(
      const ChildProcess worker,
      ChildProcess::Spawn({bin + "worker", "--coordinator", address, "--id", "w0"},
                          dir.Join("w0.log")));

  const auto failed = [&]() -> Json {
    for (const Json& line : Lines(ReadBytes(dir.Join("w0.log")))) {
      if (absl::StrContains(line.value("msg", ""), "staging epoch")) {
        if (line["level"] == "error") return line;
      }
    }
    return nullptr;
  };
  const auto until = std::chrono::steady_clock::now() + testing::kReadyTimeout;
  while (failed().is_null() && std::chrono::steady_clock::now() < until) {
    std::this_thread::yield();
  }

  const Json line = failed();
  ASSERT_FALSE(line.is_null()) << ReadBytes(dir.Join("w0.log"));
  EXPECT_EQ(line["process"], "worker w0");
  EXPECT_EQ(line["deployment"], "local");
  EXPECT_GE(line["epoch"], 1);
  EXPECT_EQ(line["reason"], "WEIGHT_HASH");
  EXPECT_EQ(line["tensor"], tensor) << line;
  EXPECT_THAT(line.value("msg", ""), HasSubstr(tensor));
}

}  // namespace
}  // namespace switchyard
