#include "ctl/syctl.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "ctl/json.h"
#include "tests/ctl/scripted_coordinator.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::ScriptedCoordinator;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr Terminal kTerminal{true, 80};
constexpr Terminal kPipe{false, 0};

TEST(SyctlTest, PrintsATableToATerminalAndJsonElsewhere) {
  const ScriptedCoordinator coordinator;
  const std::vector<std::string> words{"get", "workers", "--target", coordinator.endpoint()};

  const SyctlResult shown = RunSyctl(words, kTerminal);
  const SyctlResult piped = RunSyctl(words, kPipe);

  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.out, StartsWith("\x1b[1mID  STATE"));
  EXPECT_EQ(piped.exit_code, 0);
  EXPECT_EQ(Json::parse(piped.out)["workers"][0]["id"], "w0");
}

TEST(SyctlTest, DoesAsItIsToldWhereverTheOutputGoes) {
  const ScriptedCoordinator coordinator;
  std::vector<std::string> words{"get", "workers", "--target", coordinator.endpoint(), "-o"};

  words.emplace_back("table");
  EXPECT_THAT(RunSyctl(words, kPipe).out, StartsWith("ID  STATE"));
  words.back() = "json";
  EXPECT_THAT(RunSyctl(words, kTerminal).out, StartsWith("{"));
}

TEST(SyctlTest, AnErrorIsForPeopleOnStderrAndForProgramsOnStdout) {
  const ScriptedCoordinator coordinator;
  const std::vector<std::string> words{"describe", "deployment", "d", "--target",
                                       coordinator.endpoint()};

  const SyctlResult shown = RunSyctl(words, kTerminal);
  const SyctlResult piped = RunSyctl(words, kPipe);

  EXPECT_EQ(shown.exit_code, 1);
  EXPECT_EQ(shown.out, "");
  EXPECT_THAT(shown.err, StartsWith("syctl: no deployment d: there is local\n"));
  EXPECT_THAT(shown.err, HasSubstr("reason      UNKNOWN_MODEL\n"));
  EXPECT_EQ(piped.exit_code, 1);
  EXPECT_EQ(piped.err, shown.err);
  EXPECT_EQ(Json::parse(piped.out)["error"]["reason"], "UNKNOWN_MODEL");
}

// As documented: another start would end in the same way.
TEST(SyctlTest, AFileThatIsWrongOrMissingIsAWrongCommandLine) {
  const ScriptedCoordinator coordinator;
  const std::string file = absl::StrCat(::testing::TempDir(), "/syctl_test_", getpid(), ".yaml");
  std::ofstream(file) << "name: [\n";
  for (const std::string& path : {file, std::string("/nonexistent/file.yaml")}) {
    const SyctlResult result =
        RunSyctl({"apply", "-f", path, "--target", coordinator.endpoint()}, kTerminal);
    EXPECT_EQ(result.exit_code, 2) << path;
    EXPECT_THAT(result.err, HasSubstr(path));
  }
  std::filesystem::remove(file);
}

TEST(SyctlTest, PrintsEveryForm) {
  const ScriptedCoordinator coordinator;
  const auto get = [&](const std::string& form) {
    return RunSyctl({"get", "workers", "--target", coordinator.endpoint(), "-o", form}, kPipe).out;
  };

  EXPECT_EQ(get("name"), "worker/w0\nworker/w1\n");
  EXPECT_EQ(get("jsonpath={.workers[*].id}"), "w0 w1\n");
  EXPECT_THAT(get("yaml"), StartsWith("workers:\n  - id: w0\n    incarnation: "));
  EXPECT_THAT(get("jsonl"), StartsWith("{\"id\":\"w0\","));
  EXPECT_THAT(get("wide"), HasSubstr("PROFILE"));
  EXPECT_THAT(get("table"), Not(HasSubstr("PROFILE")));
}

TEST(SyctlTest, SortsByAPathAndLeavesTheHeadOut) {
  ScriptedCoordinator coordinator;
  coordinator.workers.mutable_workers(0)->set_experts(30);
  coordinator.workers.mutable_workers(1)->set_experts(4);
  std::vector<std::string> words{"get",       "workers", "--target", coordinator.endpoint(),
                                 "--sort-by", ".experts"};

  words.insert(words.end(), {"-o", "name"});
  EXPECT_EQ(RunSyctl(words, kPipe).out, "worker/w1\nworker/w0\n");
  words.back() = "table";
  words.emplace_back("--no-headers");
  EXPECT_THAT(RunSyctl(words, kPipe).out, StartsWith("w1  live"));
  coordinator.workers.clear_workers();
  EXPECT_EQ(RunSyctl(words, kPipe).out, "");
}

TEST(SyctlTest, ColorsATerminalOnlyUnlessToldOtherwise) {
  const ScriptedCoordinator coordinator;
  const auto colors = [&](const Terminal& terminal, const std::string& when, bool no_color) {
    Environment environment;
    environment.no_color = no_color;
    const SyctlResult result = RunSyctl(
        {"get", "workers", "--target", coordinator.endpoint(), "-o", "table", "--color", when},
        terminal, {}, environment);
    return result.out.find('\x1b') != std::string::npos;
  };

  EXPECT_TRUE(colors(kTerminal, "auto", false));
  EXPECT_FALSE(colors(kPipe, "auto", false));
  EXPECT_FALSE(colors(kTerminal, "auto", true));
  EXPECT_TRUE(colors(kPipe, "always", true));
  EXPECT_FALSE(colors(kTerminal, "never", false));
  EXPECT_EQ(RunSyctl({"get", "workers", "--target", coordinator.endpoint(), "-o", "json", "--color",
                      "always"},
                     kPipe)
                .out.find('\x1b'),
            std::string::npos);
}

TEST(SyctlTest, AnErrorIsNoNameAndNoValue) {
  const std::vector<std::string> words{"get", "workers", "--target", "127.0.0.1:1", "-o"};
  for (const char* form : {"name", "jsonpath={.workers[0].id}"}) {
    std::vector<std::string> all = words;
    all.emplace_back(form);
    const SyctlResult result = RunSyctl(all, kPipe);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "") << form;
    EXPECT_THAT(result.err, HasSubstr("COORDINATOR_LOST"));
  }
}

TEST(SyctlTest, WrongWordsAskNobody) {
  const SyctlResult result = RunSyctl({"get", "plans", "--target", "127.0.0.1:1"}, kTerminal);

  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("did you mean \"plan\"?"));
}

TEST(SyctlTest, HelpGoesToStdout) {
  const SyctlResult result = RunSyctl({"get", "--help"}, kTerminal);

  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, HasSubstr("syctl get workers"));
  EXPECT_EQ(result.err, "");
}

}  // namespace
}  // namespace switchyard::ctl
