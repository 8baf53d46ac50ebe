// Requirements and invariants are cited by number: each number has its entry, each entry its tests.

#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/docs/pages.h"
#include "tests/requirements/requirements.h"

namespace switchyard {
namespace {

using docs::LinesOf;
using docs::Repository;
using docs::TableBelow;
using requirements::Row;
using requirements::Use;
using tidy::SourceFile;

constexpr char kRequirementsPage[] = "docs/REQUIREMENTS.md";
constexpr char kInvariantsPage[] = "docs/INVARIANTS.md";

std::vector<Row> Listed() {
  const auto rows =
      requirements::ParseRequirements(absl::StrJoin(LinesOf("tests/requirements.tsv"), "\n"));
  EXPECT_TRUE(rows.ok()) << rows.status();
  return rows.value_or(std::vector<Row>());
}

// "R48" -> its state.
std::map<std::string, std::string> StatesOfThePage() {
  std::map<std::string, std::string> states;
  for (const auto& cells : TableBelow(kRequirementsPage, {"number", "requirement", "state"})) {
    EXPECT_EQ(cells.size(), 3U) << absl::StrJoin(cells, "|");
    if (cells.size() != 3) continue;
    EXPECT_FALSE(cells[1].empty()) << cells[0];
    EXPECT_TRUE(states.emplace(cells[0], cells[2]).second) << cells[0] << " has two rows";
  }
  return states;
}

// The files of this project that may cite a number: not models, not tables of numbers.
bool MayCite(const SourceFile& file) {
  for (const char* end : {".h", ".cc", ".md", ".py", ".proto", ".cmake", ".txt"}) {
    if (absl::EndsWith(file.path, end)) return true;
  }
  return file.path == "tests/requirements.tsv" || tidy::IsBelow(file.path, "scripts");
}

TEST(NumbersTest, EveryRequirementHasOneRow) {
  const auto states = StatesOfThePage();

  // Numbers are never given up: a requirement that goes keeps its row.
  EXPECT_GE(states.size(), 127U);
  for (std::size_t i = 1; i <= states.size(); ++i) {
    EXPECT_TRUE(states.contains(absl::StrCat("R", i))) << "R" << i;
  }
}

TEST(NumbersTest, EveryCitedRequirementExists) {
  const auto states = StatesOfThePage();
  const std::regex cited(R"(\bR[1-9][0-9]*\b)");
  int citations = 0;
  for (const SourceFile& file : Repository().files()) {
    if (!MayCite(file) || file.path == kRequirementsPage) continue;
    for (const std::string& line : file.lines) {
      for (std::sregex_iterator it(line.begin(), line.end(), cited), end; it != end; ++it) {
        ++citations;
        EXPECT_TRUE(states.contains(it->str()))
            << file.path << " cites " << it->str() << "; add it to " << kRequirementsPage;
      }
    }
  }
  EXPECT_GT(citations, 200);
}

std::string StateOf(Use use) {
  switch (use) {
    case Use::kServed:
      return "served";
    case Use::kLibrary:
      return "library";
    case Use::kReference:
      return "reference";
  }
  return "";
}

TEST(NumbersTest, PageAndTableOfTestsAgree) {
  auto states = StatesOfThePage();
  for (const Row& row : Listed()) {
    EXPECT_EQ(states[row.requirement], StateOf(row.use))
        << row.requirement << ": tests/requirements.tsv and " << kRequirementsPage << " differ";
    states.erase(row.requirement);
  }
  for (const auto& [number, state] : states) {
    EXPECT_TRUE(absl::StartsWith(state, "open: ") && state.size() > 6)
        << number << " has no tests; its state must be \"open: \" and the part that will have it";
  }
}

// A pattern over all families of kernels would match tests that are skipped on a CPU without AMX.
TEST(NumbersTest, ListedTestsRunOnEveryCpu) {
  for (const Row& row : Listed()) {
    for (const std::string& name : row.tests) {
      if (!absl::StartsWith(name, "Families/")) continue;
      EXPECT_TRUE(absl::StrContains(name, "/scalar") || absl::StrContains(name, "/portable_fp32"))
          << row.requirement << ": " << name << " also stands for families that a CPU may lack";
    }
  }
}

// A library without a caller is explained: ARCHITECTURE lists each part that will call one.
TEST(NumbersTest, PartsThatWillCallALibraryAreListed) {
  std::set<std::string> parts;
  for (const auto& cells :
       TableBelow("docs/ARCHITECTURE.md", {"part", "what it will call", "requirements"})) {
    parts.insert(cells[0]);
  }
  std::set<std::string> callers;
  for (const Row& row : Listed()) callers.insert(row.callers.begin(), row.callers.end());

  EXPECT_THAT(parts, ::testing::ContainerEq(callers));
}

struct Invariant {
  std::string title;
  std::map<std::string, std::string> items;  // "Why" -> the text after it
};

// "I4" -> its section.
std::map<std::string, Invariant> Invariants() {
  std::map<std::string, Invariant> found;
  Invariant* current = nullptr;
  std::string* item = nullptr;
  for (const std::string& line : LinesOf(kInvariantsPage)) {
    std::smatch match;
    if (absl::StartsWith(line, "## ")) {
      const bool numbered = std::regex_match(line, match, std::regex(R"(## (I\d+)\. (.+))"));
      current = numbered ? &found[match.str(1)] : nullptr;
      if (current != nullptr) {
        EXPECT_EQ(current->title, "") << line << " is there twice";
        current->title = match.str(2);
      }
      item = nullptr;
    } else if (current != nullptr &&
               std::regex_match(line, match, std::regex(R"(- ([A-Z][a-z ]+): (.*))"))) {
      item = &current->items[match.str(1)];
      *item = match.str(2);
    } else if (item != nullptr && absl::StartsWith(line, "  ")) {
      absl::StrAppend(item, " ", absl::StripLeadingAsciiWhitespace(line));
    } else {
      item = nullptr;
    }
  }
  return found;
}

TEST(NumbersTest, EveryInvariantSaysWhyWhoAndHow) {
  const auto invariants = Invariants();
  EXPECT_EQ(invariants.size(), 10U);
  for (int i = 1; i <= 10; ++i) {
    const std::string number = absl::StrCat("I", i);
    ASSERT_TRUE(invariants.contains(number)) << number;
    for (const char* item : {"Why", "Kept by", "Held by", "Seeded bugs"}) {
      EXPECT_TRUE(invariants.at(number).items.contains(item)) << number << " lacks " << item;
    }
  }
}

// Names like `AgentTest.HoldsAtMostTwoEpochsOfADeployment` in a page are tests of the tree.
TEST(NumbersTest, TestsThatPagesNameExist) {
  const std::regex name(R"(\w+Test\.\w+)");
  int named = 0;
  for (const SourceFile* page : docs::Pages()) {
    for (const std::string& line : page->lines) {
      for (const std::string& word : docs::Between(line, "`", "`")) {
        if (!std::regex_match(word, name)) continue;
        ++named;
        EXPECT_TRUE(docs::Tests().contains(word)) << page->path << " names " << word;
      }
    }
  }
  EXPECT_GT(named, 20);
}

TEST(NumbersTest, OraclesAndSeededBugsOfInvariantsExist) {
  std::string simulation;
  for (const SourceFile& file : Repository().files()) {
    if (!tidy::IsBelow(file.path, "tests/sim")) continue;
    absl::StrAppend(&simulation, absl::StrJoin(file.lines, "\n"), "\n");
  }
  std::set<std::string> bugs;
  for (const std::string& line : LinesOf("tests/mutants.tsv")) {
    bugs.insert(line.substr(0, line.find('\t')));
  }
  for (const auto& [number, invariant] : Invariants()) {
    const bool has_oracle =
        absl::StrContains(invariant.items.at("Held by"), absl::StrCat("oracle of `", number, "`"));
    const bool in_simulation =
        std::regex_search(simulation, std::regex(absl::StrCat("\\b", number, "\\b.*:")));
    EXPECT_EQ(has_oracle, in_simulation) << number << ": tests/sim and the page differ";
    for (const std::string& bug : docs::Between(invariant.items.at("Seeded bugs"), "`", "`")) {
      EXPECT_TRUE(bugs.contains(bug)) << number << " names " << bug;
    }
  }
}

}  // namespace
}  // namespace switchyard
