#include "ctl/completion.h"

#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/ctl/scripted_coordinator.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::ScriptedCoordinator;
using switchyard::testing::TempDir;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::IsSupersetOf;
using ::testing::Not;

class CompletionTest : public ::testing::Test {
 protected:
  std::vector<std::string> Words(const std::vector<std::string>& words) {
    return absl::StrSplit(Complete(words, environment_), '\n', absl::SkipEmpty());
  }
  // The same with the test's coordinator in use.
  std::vector<std::string> Live(const std::vector<std::string>& words) {
    environment_.target = coordinator_.endpoint();
    return Words(words);
  }

  Environment environment_;
  ScriptedCoordinator coordinator_;
};

TEST_F(CompletionTest, KnowsVerbsKindsAndOptions) {
  EXPECT_THAT(Words({""}), IsSupersetOf({"apply", "get", "config", "completion"}));
  EXPECT_THAT(Words({}), Contains("get"));
  EXPECT_THAT(Words({"de"}), ElementsAre("delete", "describe"));
  EXPECT_THAT(Words({"get", "wo"}), ElementsAre("workers"));
  EXPECT_THAT(Words({"describe", ""}), ElementsAre("deployment", "model", "worker", "layer"));
  EXPECT_THAT(Words({"config", "use"}), ElementsAre("use-context"));
  EXPECT_THAT(Words({"get", "workers", "--no"}), ElementsAre("--no-headers"));
  EXPECT_THAT(Words({"get", "workers", "--ta"}), ElementsAre("--target"));
  EXPECT_THAT(Words({"get", "--ver"}), ElementsAre("--version"));
}

TEST_F(CompletionTest, KnowsValues) {
  EXPECT_THAT(Words({"get", "workers", "-o", "j"}), ElementsAre("json", "jsonl", "jsonpath="));
  EXPECT_THAT(Words({"--output", "y"}), ElementsAre("yaml"));
  EXPECT_THAT(Words({"wait", "worker", "w0", "--for", "d"}), ElementsAre("deleted", "drained"));
  EXPECT_THAT(Words({"apply", "-f", "dep"}), ElementsAre(":files"));
  EXPECT_THAT(Words({"model", "inspect", ""}), ElementsAre(":files"));
  EXPECT_THAT(Words({"doctor", "--checkpoint", "mod"}), ElementsAre(":files"));
  EXPECT_THAT(Words({"doctor", "--scope", ""}), ElementsAre("node", "all"));
  EXPECT_THAT(Words({"doctor", "--sh"}), ElementsAre("--shm-bytes"));
  EXPECT_THAT(Words({"doctor", ""}), IsEmpty());
  EXPECT_THAT(Words({"completion", ""}), ElementsAre("bash", "zsh", "fish"));
  // A flag takes no value, and one with "=" has its own.
  EXPECT_THAT(Words({"get", "--no-headers", "wo"}), ElementsAre("workers"));
  EXPECT_THAT(Words({"get", "--output=json", "wo"}), ElementsAre("workers"));
}

TEST_F(CompletionTest, NamesAreTheCoordinators) {
  EXPECT_THAT(Live({"get", "workers", ""}), ElementsAre("w0", "w1"));
  EXPECT_THAT(Live({"drain", "worker", "w1"}), ElementsAre("w1"));
  EXPECT_THAT(Live({"describe", "model", ""}), ElementsAre("toy"));
  EXPECT_THAT(Live({"get", "plan", ""}), ElementsAre("local"));
  EXPECT_THAT(Live({"explain", "layer", "3", "--deployment", "l"}), ElementsAre("local"));
  EXPECT_THAT(Live({"get", "events", ""}), ElementsAre("w0", "w1", "local"));
  EXPECT_THAT(Live({"top", ""}), ElementsAre("w0", "w1"));
  EXPECT_THAT(Live({"describe", "layer", ""}), IsEmpty());
  EXPECT_THAT(Live({"get", "workers", "w0", ""}), IsEmpty());
}

TEST_F(CompletionTest, IsSilentWhereNobodyAnswers) {
  EXPECT_EQ(Complete({"--target", "127.0.0.1:1", "get", "workers", ""}, environment_), "");
  EXPECT_EQ(Complete({"--target", "nonsense", "get", "workers", ""}, environment_), "");
  EXPECT_EQ(Complete({"--context", "none", "get", "workers", ""}, environment_), "");
  EXPECT_EQ(Complete({"gte", "--nonsense", "x", ""}, environment_).find("syctl:"),
            std::string::npos);
}

TEST_F(CompletionTest, TargetOfTheCommandLineAndContextsCount) {
  const TempDir dir;
  environment_.contexts_path =
      dir.Write("syctl.yaml", "contexts:\n  there: {target: '" + coordinator_.endpoint() + "'}\n");

  EXPECT_THAT(Words({"--target", coordinator_.endpoint(), "get", "worker", ""}), Contains("w0"));
  EXPECT_THAT(Words({"--target=" + coordinator_.endpoint(), "cordon", "worker", ""}),
              Contains("w0"));
  EXPECT_THAT(Words({"--context", "there", "get", "worker", ""}), Contains("w0"));
  EXPECT_THAT(Words({"--context", ""}), ElementsAre("there"));
  EXPECT_THAT(Words({"config", "use-context", ""}), ElementsAre("there"));
  EXPECT_THAT(Words({"config", "current-context", ""}), IsEmpty());
}

TEST_F(CompletionTest, ScriptsAskSyctl) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const SyctlResult result = RunSyctl({"completion", shell}, {});
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_EQ(result.out, CompletionScript(shell));
    EXPECT_NE(result.out.find(kCompleteWord), std::string::npos) << shell;
  }
  EXPECT_EQ(RunSyctl({"completion", "csh"}, {}).exit_code, 2);
  EXPECT_THAT(Words({"__complete"}), Not(Contains("__complete")));
}

}  // namespace
}  // namespace switchyard::ctl
