#include "core/cli/man_page.h"

#include "CLI/CLI.hpp"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/cli/command_line.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class ManPageTest : public ::testing::Test {
 protected:
  ManPageTest() {
    AddVersionFlag(app_);
    app_.add_option("-g,--golden", text_, "The file, as \\path")->type_name("file");
    app_.add_option("--depth", number_, ".5 or more")->group("limits: what is read");
    app_.footer("Exit codes:\n.0 done\n'quoted'\n");
    CLI::App* get = app_.add_subcommand("get", "List things");
    get->add_option("KIND", text_, "What to list")->required();
    get->footer("Examples:\n  checker get all\n");
    get->add_subcommand("deeper", "Go on");
  }

  std::string text_;
  int number_ = 0;
  CLI::App app_{"Checks something.", "checker"};
};

TEST_F(ManPageTest, HasEveryOptionAndCommand) {
  const std::string page = ManPage(app_, "1");

  EXPECT_THAT(page, StartsWith(".TH \"CHECKER\" 1 \"\" \"Switchyard "));
  EXPECT_THAT(page, HasSubstr("\n.SH NAME\nchecker \\- Checks something\n"));
  EXPECT_THAT(page, HasSubstr("\n.TP\n\\fB\\-g\\fR, \\fB\\-\\-golden\\fR \\fIFILE\\fR\n"));
  EXPECT_THAT(page, HasSubstr("\n.SS \"limits: what is read\"\n.TP\n\\fB\\-\\-depth\\fR"));
  EXPECT_THAT(page,
              HasSubstr("\n.SS \"checker get\"\nList things\n.TP\n\\fIKIND\\fR\nWhat to list\n"));
  EXPECT_THAT(page, HasSubstr("\n  checker get all\n.fi\n.SS \"checker get deeper\"\nGo on\n"));
}

// A line that begins with a point or a quote is a request to troff, and "\p" is one within a line.
TEST_F(ManPageTest, TextsAreNoRequests) {
  const std::string page = ManPage(app_, "1");

  EXPECT_THAT(page, HasSubstr("\nThe file, as \\epath\n"));
  EXPECT_THAT(page, HasSubstr("\n\\&.5 or more\n"));
  EXPECT_THAT(page, HasSubstr("\n\\&.0 done\n\\&'quoted'\n"));
}

TEST_F(ManPageTest, IsAHiddenOption) {
  const auto page = ParseWords(app_, {kManPageFlag, "8"});

  ASSERT_TRUE(page.has_value());
  EXPECT_EQ(page->exit_code, kExitDone);
  EXPECT_EQ(page->text, ManPage(app_, "8"));
  EXPECT_EQ(ParseWords(app_, {kManPageFlag})->exit_code, kExitUsage);
  EXPECT_THAT(app_.help(), Not(HasSubstr(kManPageFlag)));
}

}  // namespace
}  // namespace switchyard
