// The pages against the tree: links lead somewhere, named files exist, tables are complete.

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/docs/pages.h"
#include "tests/tidy/source_tree.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
using docs::Between;
using docs::Cells;
using docs::Pages;
using docs::Repository;
using tidy::SourceFile;

bool Exists(const fs::path& path) { return fs::exists(fs::path(SWITCHYARD_SOURCE_DIR) / path); }

// The fragment that a heading gets: "## A state store" is "#a-state-store".
std::string FragmentOf(const std::string& heading) {
  std::string fragment;
  for (const char c : heading.substr(heading.find_first_not_of("# "))) {
    const auto byte = static_cast<unsigned char>(c);
    if (absl::ascii_isalnum(byte)) fragment += absl::ascii_tolower(byte);
    if (c == ' ' || c == '-') fragment += '-';
    if (c == '_') fragment += '_';
  }
  return fragment;
}

bool HasHeading(const std::string& path, const std::string& fragment) {
  for (const std::string& line : docs::LinesOf(path)) {
    if (absl::StartsWith(line, "#") && FragmentOf(line) == fragment) return true;
  }
  return false;
}

TEST(DocsTest, LinksLeadSomewhere) {
  int links = 0;
  for (const SourceFile* page : Pages()) {
    for (const std::string& line : page->lines) {
      for (const std::string& link : Between(line, "](", ")")) {
        ++links;
        const std::string target = link.substr(0, link.find('#'));
        const fs::path path =
            target.empty() ? fs::path(page->path)
                           : (fs::path(page->path).parent_path() / target).lexically_normal();
        EXPECT_TRUE(Exists(path)) << page->path << " links to " << link;
        if (target.size() == link.size()) continue;
        EXPECT_TRUE(HasHeading(path.generic_string(), link.substr(target.size() + 1)))
            << page->path << " links to " << link;
      }
    }
  }
  EXPECT_GE(links, 5);
}

// `core/ids.h` in a page is a promise that there is such a file; `worker/device/` a folder.
// `/livez` is a path of HTTP.
TEST(DocsTest, NamedFilesExist) {
  int named = 0;
  for (const SourceFile* page : Pages()) {
    for (const std::string& line : page->lines) {
      for (const std::string& word : Between(line, "`", "`")) {
        const std::string top = word.substr(0, word.find('/'));
        const bool is_path = word.find('/') != std::string::npos && !top.empty() && Exists(top) &&
                             word.find_first_of(" *{}<>=,$") == std::string::npos &&
                             top != "build" && top != "out";
        if (!is_path) continue;
        ++named;
        EXPECT_TRUE(Exists(word)) << page->path << " names " << word;
      }
    }
  }
  EXPECT_GT(named, 10);
}

TEST(DocsTest, DependenciesListEveryPackageWithItsVersion) {
  std::map<std::string, std::string> documented;
  const SourceFile* page = Repository().Find("docs/DEPENDENCIES.md");
  ASSERT_NE(page, nullptr);
  for (const std::string& line : page->lines) {
    const std::vector<std::string> cells = Cells(line);
    if (cells.size() >= 3) documented[cells[0]] = cells[1];
  }
  documented.erase("package");

  std::map<std::string, std::string> installed;
  const SourceFile* list = Repository().Find("scripts/packages.txt");
  ASSERT_NE(list, nullptr);
  for (const std::string& line : list->lines) {
    if (absl::StartsWith(line, "#")) continue;
    const std::vector<std::string> columns = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (columns.size() == 4) installed[columns[1]] = columns[2] == "-" ? "any" : columns[2];
  }

  EXPECT_EQ(documented, installed);
}

// A reader copies commands from the pages: each block says who proves that they work. "sh run" is
// run by run_commands.py, every line of "sh ci" stands in .ci/run or is a target that it makes, and
// "sh node" is run by run_commands.py --node on a Kubernetes node; only docs/KUBERNETES.md has
// those.
TEST(DocsTest, CommandsSayWhoRunsThem) {
  const SourceFile* ci = Repository().Find(".ci/run");
  ASSERT_NE(ci, nullptr);
  const std::set<std::string> ci_lines(ci->lines.begin(), ci->lines.end());
  int blocks = 0;
  for (const SourceFile* page : Pages()) {
    bool in_ci_block = false;
    for (const std::string& line : page->lines) {
      if (absl::StartsWith(line, "```sh")) {
        ++blocks;
        const bool on_a_node = line == "```sh node" && page->path == "docs/KUBERNETES.md";
        EXPECT_TRUE(line == "```sh run" || line == "```sh ci" || on_a_node)
            << page->path << ": " << line;
      } else if (in_ci_block && line != "```") {
        const std::string command(absl::StripAsciiWhitespace(line.substr(0, line.find('#'))));
        bool found = false;
        for (const std::string& ci_line : ci_lines) found |= absl::StrContains(ci_line, command);
        EXPECT_TRUE(found) << page->path << ": .ci/run does not run " << command;
      }
      if (absl::StartsWith(line, "```")) in_ci_block = line == "```sh ci";
    }
  }
  EXPECT_GT(blocks, 0);
}

// A page whose blocks nobody runs would only look tested.
TEST(DocsTest, EveryPageWithCommandsIsRun) {
  std::set<std::string> run;
  for (const std::string& line : docs::LinesOf("tests/docs/CMakeLists.txt")) {
    run.insert(std::string(absl::StripSuffix(absl::StripAsciiWhitespace(line), ")")));
  }
  for (const SourceFile* page : Pages()) {
    const bool has_commands =
        std::find(page->lines.begin(), page->lines.end(), "```sh run") != page->lines.end();
    EXPECT_EQ(run.contains(page->path), has_commands)
        << page->path << ": pages_with_commands of tests/docs/CMakeLists.txt differs";
  }
}

// Reason -> its codes, as docs/ERRORS.md has them.
std::map<std::string, std::set<std::string>> DocumentedErrors() {
  std::map<std::string, std::set<std::string>> errors;
  const SourceFile* page = Repository().Find("docs/ERRORS.md");
  if (page == nullptr) return errors;
  for (const std::string& line : page->lines) {
    const std::vector<std::string> cells = Cells(line);
    if (cells.size() != 4 || cells[0] == "reason") continue;
    EXPECT_FALSE(errors.contains(cells[0])) << cells[0] << " has two rows";
    EXPECT_FALSE(cells[2].empty() || cells[3].empty()) << cells[0];
    errors[cells[0]] = absl::StrSplit(cells[1], ", ");
  }
  return errors;
}

TEST(DocsTest, ErrorsListEveryReason) {
  std::vector<std::string> documented;
  for (const auto& [reason, codes] : DocumentedErrors()) documented.push_back(reason);
  std::vector<std::string> wanted;
  for (const Reason reason : AllReasons()) {
    if (reason != Reason::kUnspecified) wanted.emplace_back(ReasonName(reason));
  }

  EXPECT_THAT(documented, ::testing::UnorderedElementsAreArray(wanted));
}

// What OPERATIONS says of a fault names reasons; ERRORS says what to do about each.
TEST(DocsTest, FaultsNameReasonsOfTheList) {
  const std::set<std::string> other{"ACTIVITY", "STATE"};  // columns of syctl
  const std::map<std::string, std::set<std::string>> documented = DocumentedErrors();
  const docs::Table faults = docs::TableBelow(
      "docs/OPERATIONS.md", {"fault", "what is seen", "what happens by itself", "what to do"});
  std::set<std::string> named;
  for (const auto& cells : faults) {
    ASSERT_EQ(cells.size(), 4U);
    for (const absl::string_view word :
         absl::StrSplit(cells[1], absl::ByAnyChar(" ,;()"), absl::SkipEmpty())) {
      const bool is_reason =
          word.size() > 4 && absl::c_all_of(word, [](char c) {
            return absl::ascii_isupper(static_cast<unsigned char>(c)) || c == '_';
          });
      if (!is_reason || other.contains(std::string(word))) continue;
      named.emplace(word);
      EXPECT_TRUE(documented.contains(std::string(word))) << cells[0] << ": " << word;
    }
  }
  EXPECT_GE(faults.size(), 20U);
  EXPECT_GE(named.size(), 15U);
}

// "kInvalidArgument" -> "INVALID_ARGUMENT".
std::string ScreamingSnake(absl::string_view constant) {
  std::string out;
  for (const char c : constant.substr(1)) {
    if (absl::ascii_isupper(static_cast<unsigned char>(c)) && !out.empty()) out += '_';
    out += absl::ascii_toupper(static_cast<unsigned char>(c));
  }
  return out;
}

// Wherever a source writes "StatusCode::kX, Reason::kY", the page has X among the codes of Y.
TEST(DocsTest, ErrorsListEveryCodeThatTheSourcesUse) {
  const std::map<std::string, std::set<std::string>> documented = DocumentedErrors();
  int uses = 0;
  for (const SourceFile& file : Repository().files()) {
    if (!file.IsCpp() || tidy::IsBelow(file.path, "tests")) continue;
    std::string text;
    for (const std::string& line : file.code) absl::StrAppend(&text, line, " ");
    for (const std::string& after : Between(text, "StatusCode::", ";")) {
      const std::vector<absl::string_view> words = absl::StrSplit(
          absl::string_view(after).substr(0, 120), absl::ByAnyChar(" ,()"), absl::SkipEmpty());
      if (words.size() < 2 || !absl::StartsWith(words[1], "Reason::k")) continue;
      ++uses;
      const std::string reason = ScreamingSnake(words[1].substr(8));
      if (reason == "UNSPECIFIED") continue;
      ASSERT_TRUE(documented.contains(reason)) << file.path << " uses " << reason;
      EXPECT_TRUE(documented.at(reason).contains(ScreamingSnake(words[0])))
          << file.path << " uses " << ScreamingSnake(words[0]) << " with " << reason;
    }
  }
  EXPECT_GT(uses, 20);
}

}  // namespace
}  // namespace switchyard
