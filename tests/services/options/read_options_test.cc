#include "services/options/read_options.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/services/options/toy_table.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ToySettings;
using testing::ToyTable;

class ReadOptionsTest : public ::testing::Test {
 protected:
  std::optional<ProgramEnd> Read(const std::vector<std::string>& words) {
    settings_ = {};
    return ReadOptions(ToyTable(&settings_), words);
  }
  // The first line of a mistake.
  std::string Mistake(const std::vector<std::string>& words) {
    const auto end = Read(words);
    if (!end) return "none";
    EXPECT_EQ(end->exit_code, kExitUsage);
    return end->text.substr(0, end->text.find('\n'));
  }

  const testing::TempDir dir_;
  ToySettings settings_;
};

TEST_F(ReadOptionsTest, AFlagIsAboveTheFileAndTheFileAboveTheDefault) {
  const std::string file =
      dir_.Write("toy.yaml", "pool:\n  id: f\n  level: warn\nmemory:\n  bytes_max: 2MiB\n");

  EXPECT_FALSE(Read({"--config", file, "--id", "w0"}));

  EXPECT_EQ(settings_.id, "w0");
  EXPECT_EQ(settings_.level, "warn");
  EXPECT_EQ(settings_.bytes, 2 << 20);
  EXPECT_EQ(settings_.last, std::chrono::seconds(5));
}

TEST_F(ReadOptionsTest, ListFlagsMayBeRepeatedAndOthersMayNot) {
  EXPECT_FALSE(Read({"--id", "w0", "--file", "a", "--file", "b"}));
  EXPECT_THAT(settings_.files, ElementsAre("a", "b"));
  EXPECT_EQ(Mistake({"--id", "w0", "--id", "w1"}), "toy: --id is given twice");
}

TEST_F(ReadOptionsTest, MistakesNameTheirPlace) {
  const std::string file = dir_.Write("toy.yaml", "memory:\n  bytes_max: -5\n");
  const std::string late = dir_.Write("late.yaml", "timeouts:\n  retry_first: 9s\n");

  EXPECT_EQ(Mistake({}), "toy: --id is required; give it, or pool.id in the file of --config");
  EXPECT_EQ(Mistake({"--id", "w0", "--config", file}),
            absl::StrCat("toy: ", file,
                         ":2: memory.bytes_max: \"-5\" is out of range; give at "
                         "least 0"));
  EXPECT_EQ(Mistake({"--id", "w0", "--bytes-max", "x"}).substr(0, 26),
            "toy: --bytes-max: \"x\" is n");
  EXPECT_EQ(Mistake({"--id", "w0", "--config", late}),
            absl::StrCat("toy: ", late, ":2: retry_first is above retry_last"));
  EXPECT_EQ(Mistake({"--id", "w0", "--config", late, "--retry-last", "8s"}),
            absl::StrCat("toy: ", late, ":2, --retry-last: retry_first is above retry_last"));
  EXPECT_EQ(Mistake({"--idd", "w0"}), "toy: unknown option --idd; did you mean --id?");
  EXPECT_EQ(Mistake({"-v"}), "toy: unknown option -v; did you mean --version?");
  EXPECT_EQ(Mistake({"--id"}), "toy: --id needs a value");
}

TEST_F(ReadOptionsTest, ANameThatNeedsAnAnswerOfItsOwnIsCheckedFirst) {
  OptionTable table = ToyTable(&settings_);
  table.check_flag = [](absl::string_view flag) {
    return flag == "--old" ? absl::InvalidArgumentError("write --new") : absl::OkStatus();
  };

  const auto end = ReadOptions(table, {"--old", "x"});

  ASSERT_TRUE(end);
  EXPECT_THAT(end->text, HasSubstr("toy: write --new\n"));
}

TEST_F(ReadOptionsTest, HelpHasEveryOptionWithDefaultAndKey) {
  const auto help = Read({"--help"});

  ASSERT_TRUE(help);
  EXPECT_EQ(help->exit_code, kExitDone);
  for (const Option& option : ToyTable(&settings_).options) {
    EXPECT_THAT(help->text, AllOf(HasSubstr(option.flag), HasSubstr("key " + option.key)));
  }
  EXPECT_THAT(help->text, HasSubstr("default: 5s"));
}

TEST_F(ReadOptionsTest, PrintsWhereEachValueComesFrom) {
  const std::string file = dir_.Write("toy.yaml", "memory:\n  bytes_max: 2MiB\n");

  const auto end = Read({"--config", file, "--id", "it's", "--print-config"});

  ASSERT_TRUE(end);
  EXPECT_EQ(end->exit_code, kExitDone);
  EXPECT_EQ(end->text, absl::StrCat("# The configuration of toy.\n"
                                    "pool:\n"
                                    "  id: 'it''s'                             # --id\n"
                                    "  level: info                             # default\n"
                                    "  # files:                                # default: none\n"
                                    "memory:\n"
                                    "  bytes_max: 2MiB                         # ",
                                    file,
                                    ":2\n"
                                    "timeouts:\n"
                                    "  retry_first: 1s                         # default\n"
                                    "  retry_last: 5s                          # default\n"));
}

// What is printed can be given back.
TEST_F(ReadOptionsTest, ThePrintedConfigurationIsOne) {
  const auto printed = Read({"--id", "no: good # 'name'", "--file", "/a b", "--file", "/c",
                             "--bytes-max", "1000", "--retry-first", "1500ms", "--print-config"});
  ASSERT_TRUE(printed);
  const std::string file = dir_.Write("printed.yaml", printed->text);

  const auto again = Read({"--config", file, "--print-config"});

  ASSERT_TRUE(again);
  EXPECT_EQ(again->exit_code, kExitDone) << again->text;
  EXPECT_EQ(settings_.id, "no: good # 'name'");
  EXPECT_THAT(settings_.files, ElementsAre("/a b", "/c"));
  EXPECT_EQ(settings_.bytes, 1000);
  EXPECT_EQ(settings_.first, std::chrono::milliseconds(1500));
  EXPECT_THAT(again->text, Not(HasSubstr("# --")));
}

}  // namespace
}  // namespace switchyard
