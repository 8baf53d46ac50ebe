// The words of the pages: the glossary defines each once, and what it rules out does not occur.

#include <regex>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/docs/pages.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using tidy::SourceFile;

constexpr char kGlossary[] = "docs/GLOSSARY.md";

// A line of prose without what stands between backticks and the targets of links.
std::string Prose(const std::string& line) {
  static const std::regex kNotProse(R"(`[^`]*`|\]\([^)]*\))");
  return absl::AsciiStrToLower(std::regex_replace(line, kNotProse, " "));
}

// The words of `banned` in the prose of `lines`, each as "line: word". Fenced blocks are no prose.
std::vector<std::string> Find(const std::vector<std::string>& lines,
                              const std::vector<std::string>& banned) {
  std::vector<std::string> found;
  bool in_block = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (absl::StartsWith(lines[i], "```")) in_block = !in_block;
    if (in_block) continue;
    const std::string prose = Prose(lines[i]);
    for (const std::string& word : banned) {
      if (std::regex_search(prose, std::regex(absl::StrCat("\\b", word)))) {
        found.push_back(absl::StrCat(i + 1, ": ", word));
      }
    }
  }
  return found;
}

std::vector<std::string> WithoutTables(std::vector<std::string> lines) {
  for (std::string& line : lines) {
    if (absl::StartsWith(line, "|")) line.clear();
  }
  return lines;
}

std::vector<std::string> NotUsed() {
  std::vector<std::string> words;
  for (const auto& cells : docs::TableBelow(kGlossary, {"word", "instead"})) {
    EXPECT_EQ(cells.size(), 2U);
    EXPECT_FALSE(cells[1].empty()) << cells[0];
    words.push_back(absl::StrCat(cells[0], "s?\\b"));
  }
  return words;
}

TEST(WordsTest, GlossaryIsInOrderAndDefinesAWordOnce) {
  std::vector<std::string> words;
  for (const auto& cells : docs::TableBelow(kGlossary, {"word", "meaning"})) {
    ASSERT_EQ(cells.size(), 2U);
    EXPECT_FALSE(cells[1].empty()) << cells[0];
    words.push_back(cells[0]);
  }

  ASSERT_GT(words.size(), 40U);
  for (std::size_t i = 1; i < words.size(); ++i) EXPECT_LT(words[i - 1], words[i]);
}

TEST(WordsTest, PagesUseNoWordThatTheGlossaryRulesOut) {
  const std::vector<std::string> banned = NotUsed();
  ASSERT_GT(banned.size(), 10U);
  for (const SourceFile* page : docs::Pages()) {
    // The glossary's own table names them.
    const auto lines = page->path == kGlossary ? WithoutTables(page->lines) : page->lines;
    EXPECT_THAT(Find(lines, banned), IsEmpty()) << page->path;
  }
}

// Programs write these tables, with texts of their own.
bool HasTablesOfPrograms(const SourceFile& page) {
  return page.path == "docs/ACCURACY.md" || page.path == "docs/MODELS.md";
}

TEST(WordsTest, PagesSpellAsAmericansDo) {
  const std::vector<std::string> british{
      "\\w*(quanti|reali|seriali|initiali|normali|organi|optimi|recogni|summari|generali)s(e|ing|"
      "ation)",
      "(colour|behaviour|favour|neighbour|honour)",
      "(un)?(dialled|dialling|labelled|modelled|travelled|cancelling)",
      "(centre|metre|grey|licence|catalogue|artefact|analyse|whilst|amongst|learnt|spelt|misspelt|"
      "spoilt|tonne|programme)\\b",
  };
  for (const SourceFile* page : docs::Pages()) {
    const auto lines = HasTablesOfPrograms(*page) ? WithoutTables(page->lines) : page->lines;
    EXPECT_THAT(Find(lines, british), IsEmpty()) << page->path;
  }
}

TEST(WordsTest, FindLooksAtProseOnly) {
  EXPECT_THAT(Find({"The seats are `seat`s, [here](docs/seat.md).", "```text", "a seat", "```",
                    "unseated Seat"},
                   {"seats?\\b"}),
              ElementsAre("1: seats?\\b", "5: seats?\\b"));
}

}  // namespace
}  // namespace switchyard
