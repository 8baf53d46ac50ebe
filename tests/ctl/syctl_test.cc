#include "ctl/syctl.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ctl/json.h"
#include "tests/ctl/scripted_coordinator.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::ScriptedCoordinator;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr Terminal kTerminal{true, 80};
constexpr Terminal kPipe{false, 0};

TEST(SyctlTest, PrintsATableToATerminalAndJsonElsewhere) {
  const ScriptedCoordinator coordinator;
  const std::vector<std::string> words{"get", "workers", "--target", coordinator.endpoint()};

  const SyctlResult shown = RunSyctl(words, kTerminal);
  const SyctlResult piped = RunSyctl(words, kPipe);

  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.out, StartsWith("ID  STATE"));
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
