// docs/SYCTL.md against the command line of syctl: its table has every command and option, in the
// words of --help.

#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ctl/command_line.h"
#include "ctl/verbs.h"
#include "tests/docs/pages.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;

constexpr char kPage[] = "docs/SYCTL.md";
constexpr char kBegin[] = "<!-- commands of syctl -->";
constexpr char kEnd[] = "<!-- end -->";

std::string Cell(const std::string& text) { return absl::StrReplaceAll(text, {{"|", "\\|"}}); }

// "-f, --file", or "NAME" of an argument without a dash.
std::string NamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames())
    names.push_back(absl::StrCat("`-", name, "`"));
  for (const std::string& name : option.get_lnames()) {
    names.push_back(absl::StrCat("`--", name, "`"));
  }
  if (names.empty()) names.push_back(absl::StrCat("`", option.get_name(/*positional=*/true), "`"));
  return absl::StrJoin(names, ", ");
}

std::vector<std::string> OptionLines(const CLI::App& app) {
  std::vector<std::string> lines;
  for (const CLI::Option* option : app.get_options()) {
    // Every command has it.
    if (option->check_name("--help")) continue;
    lines.push_back(absl::StrCat("| | ", NamesOf(*option), " | ", Cell(option->get_description()),
                                 option->get_required() ? " (required)" : "", " |"));
  }
  return lines;
}

void AddCommands(const CLI::App& app, const std::string& before, std::vector<std::string>* lines) {
  for (const CLI::App* verb : app.get_subcommands([](const CLI::App* /*each*/) { return true; })) {
    const std::string name = absl::StrCat(before, verb->get_name());
    lines->push_back(absl::StrCat("| `", name, "` | | ", Cell(verb->get_description()), " |"));
    for (std::string& line : OptionLines(*verb)) lines->push_back(std::move(line));
    AddCommands(*verb, name + " ", lines);
  }
}

// The table between the marks.
std::vector<std::string> TableOf(const CLI::App& app) {
  std::vector<std::string> lines{"", "| command | argument or option | meaning |", "|---|---|---|",
                                 "| every command | | |"};
  for (std::string& line : OptionLines(app)) lines.push_back(std::move(line));
  AddCommands(app, "", &lines);
  lines.emplace_back();
  return lines;
}

// `page` with the table in place of what stands between the marks.
std::vector<std::string> WithCommands(const std::vector<std::string>& page, const CLI::App& app) {
  std::vector<std::string> out;
  bool inside = false;
  for (const std::string& line : page) {
    if (inside && line == kEnd) inside = false;
    if (!inside) out.push_back(line);
    if (line != kBegin) continue;
    inside = true;
    for (std::string& each : TableOf(app)) out.push_back(std::move(each));
  }
  return out;
}

TEST(SyctlPageTest, HasEveryCommandAndOption) {
  CLI::App app("syctl", "syctl");
  ctl::RawCommandLine raw;
  ctl::AddVerbs(app, raw);
  const std::vector<std::string> page = docs::LinesOf(kPage);

  const std::vector<std::string> wanted = WithCommands(page, app);

  EXPECT_THAT(wanted,
              ::testing::Contains("| `apply` | | Create or change deployments from a file |"))
      << kPage << " lacks " << kBegin;
  const std::string path = ::testing::TempDir() + "SYCTL.md";
  if (page != wanted) {
    std::ofstream out(path);
    for (const std::string& line : wanted) out << line << "\n";
  }
  EXPECT_TRUE(page == wanted) << kPage << " is not what syctl takes; this is: " << path;
}

// A command that nobody has any more, or an option that the page lacks, is seen.
TEST(SyctlPageTest, LinesOfCommandsAreReplaced) {
  CLI::App app("toy", "toy");
  std::string name;
  bool now = false;
  app.add_flag("--loud", now, "a|b");
  CLI::App* verb = app.add_subcommand("go", "Go there");
  verb->add_option("NAME", name, "Where")->required();
  verb->add_flag("-n,--now", now, "At once");

  EXPECT_THAT(WithCommands({"before", kBegin, "old", kEnd, "after"}, app),
              ElementsAre("before", kBegin, "", "| command | argument or option | meaning |",
                          "|---|---|---|", "| every command | | |", "| | `--loud` | a\\|b |",
                          "| `go` | | Go there |", "| | `NAME` | Where (required) |",
                          "| | `-n`, `--now` | At once |", "", kEnd, "after"));
}

}  // namespace
}  // namespace switchyard
