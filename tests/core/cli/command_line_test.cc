#include "core/cli/command_line.h"

#include "CLI/CLI.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Parsed {
  std::optional<ProgramEnd> end;
  std::string golden;
  int workers = 0;
  int seed = 0;
};

Parsed Parse(const std::vector<std::string>& words) {
  Parsed parsed;
  CLI::App app("Checks something.", "checker");
  AddVersionFlag(app);
  app.add_option("--golden", parsed.golden, "The file")->required();
  app.add_option("--workers", parsed.workers, "How many")->check(CLI::Range(1, 64));
  app.add_option("--seed", parsed.seed, "Any");
  parsed.end = ParseWords(app, words);
  return parsed;
}

// The first line of the mistake.
std::string Mistake(const std::vector<std::string>& words) {
  const Parsed parsed = Parse(words);
  if (!parsed.end) return "none";
  EXPECT_EQ(parsed.end->exit_code, kExitUsage);
  EXPECT_THAT(parsed.end->text, HasSubstr("\nnext: 'checker --help' shows the usage\n"));
  return parsed.end->text.substr(0, parsed.end->text.find('\n'));
}

TEST(CommandLineTest, ReadsAValidOne) {
  const Parsed parsed = Parse({"--golden", "a", "--workers", "3"});

  EXPECT_FALSE(parsed.end);
  EXPECT_EQ(parsed.golden, "a");
  EXPECT_EQ(parsed.workers, 3);
}

TEST(CommandLineTest, HelpAndVersionSucceed) {
  const auto help = Parse({"--help"}).end;
  const auto version = Parse({"--version"}).end;

  ASSERT_TRUE(help && version);
  EXPECT_EQ(help->exit_code, kExitDone);
  EXPECT_THAT(help->text, HasSubstr("--golden"));
  EXPECT_EQ(version->exit_code, kExitDone);
  EXPECT_EQ(version->text, VersionText("checker"));
  EXPECT_THAT(version->text, ::testing::MatchesRegex("checker [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

TEST(CommandLineTest, SaysWhatIsWrong) {
  EXPECT_EQ(Mistake({"--gloden", "a"}), "checker: unknown option --gloden; did you mean --golden?");
  EXPECT_EQ(Mistake({"--golden", "a", "--gloden=b"}),
            "checker: unknown option --gloden; did you mean --golden?");
  EXPECT_EQ(Mistake({"-v"}), "checker: unknown option -v; did you mean --version?");
  EXPECT_EQ(Mistake({"--golden", "a", "--xyzzy"}), "checker: unknown option --xyzzy");
  EXPECT_EQ(Mistake({"--golden", "a", "more"}), "checker: unexpected argument \"more\"");
  EXPECT_EQ(Mistake({}), "checker: --golden is required");
  EXPECT_EQ(Mistake({"--golden"}), "checker: --golden needs a value");
  EXPECT_EQ(Mistake({"--golden", "a", "--golden", "b"}), "checker: --golden is given twice");
  EXPECT_EQ(Mistake({"--golden", "a", "--workers", "many"}),
            "checker: --workers: Value many not in range 1 to 64");
  EXPECT_EQ(Mistake({"--golden", "a", "--seed", "many"}),
            "checker: --seed: \"many\" is not a number of its range");
  EXPECT_THAT(Mistake({"--golden", "a", "--workers", "65"}), StartsWith("checker: --workers: "));
}

TEST(CommandLineTest, TheHelpOfAVerbIsNamed) {
  const ProgramEnd end = UsageMistake("syctl apply", "-f is required");

  EXPECT_EQ(end.text, "syctl: -f is required\nnext: 'syctl apply --help' shows the usage\n");
}

TEST(CommandLineTest, PrintsMistakesOnStderrAndAnswersOnStdout) {
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(Print({kExitDone, "answer"}), 0);
  EXPECT_EQ(Print({kExitUsage, "mistake"}), 2);

  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "answer");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "mistake");
}

}  // namespace
}  // namespace switchyard
