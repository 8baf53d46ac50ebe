// docs/CONFIGURATION.md against the tables of options that the programs read.

#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/cli/exit_code.h"
#include "services/bin/coordinator_options.h"
#include "services/bin/worker_options.h"
#include "tests/docs/configuration_page.h"
#include "tests/docs/pages.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;

constexpr char kPage[] = "docs/CONFIGURATION.md";

TEST(ConfigurationPageTest, HasEveryOptionAsThePrograms) {
  CoordinatorSettings coordinator;
  WorkerSettings worker;
  const std::vector<std::string> page = docs::LinesOf(kPage);
  std::vector<std::string> wanted = docs::WithOptions(page, CoordinatorOptionTable(&coordinator));
  wanted = docs::WithOptions(wanted, WorkerOptionTable(&worker));

  const std::string path = ::testing::TempDir() + "CONFIGURATION.md";
  if (page != wanted) {
    std::ofstream out(path);
    for (const std::string& line : wanted) out << line << "\n";
  }
  EXPECT_TRUE(page == wanted) << kPage << " is not what the options say; this is: " << path;
}

// An option that the page lacks, or that nobody has any more, is seen.
TEST(ConfigurationPageTest, LinesOfOptionsAreReplaced) {
  std::string id = "w0";
  OptionTable table;
  table.program = "toy";
  table.sections = {{"pool", "which one"}};
  table.options = {TextOption({.key = "pool.id", .help = "a|b"}, &id)};
  const std::vector<std::string> page{"before", "<!-- options of toy -->", "old", "<!-- end -->",
                                      "after"};

  EXPECT_THAT(
      docs::WithOptions(page, table),
      ElementsAre("before", "<!-- options of toy -->", "", "**pool**: which one.", "",
                  "| key | flag | type | default | meaning |", "|---|---|---|---|---|",
                  "| `pool.id` | `--id` | text | `w0` | a\\|b |", "", "<!-- end -->", "after"));
}

TEST(ConfigurationPageTest, HasEveryExitCode) {
  std::vector<std::string> codes;
  for (const auto& cells : docs::TableBelow(kPage, {"code", "meaning", "of a check"})) {
    codes.push_back(cells[0]);
  }

  EXPECT_THAT(codes, ElementsAre(absl::StrCat(kExitDone), absl::StrCat(kExitFailed),
                                 absl::StrCat(kExitUsage)));
}

}  // namespace
}  // namespace switchyard
