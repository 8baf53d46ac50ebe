#include "tests/tidy/text_rules.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "tests/tidy/blocks.h"

namespace switchyard::tidy {
namespace {

constexpr std::size_t kHeaderLinesMax = 200;
constexpr std::size_t kSourceLinesMax = 500;
constexpr std::size_t kTestLinesMax = 800;
constexpr int kFunctionLinesMax = 70;

bool StartsWithAny(absl::string_view path, const std::vector<std::string>& prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(),
                     [path](const std::string& prefix) { return absl::StartsWith(path, prefix); });
}

// An exemption "=text" is for lines that hold the text.
bool IsExempt(absl::string_view line, const std::vector<std::string>& exempt) {
  return std::any_of(exempt.begin(), exempt.end(), [line](absl::string_view text) {
    return absl::ConsumePrefix(&text, "=") && absl::StrContains(line, text);
  });
}

bool IsProduct(absl::string_view path) {
  return !IsBelow(path, "tests") && !IsBelow(path, "bench");
}

bool Mentions(absl::string_view line, absl::string_view word) {
  if (!absl::EndsWith(word, "*")) return HasWord(line, word);
  word.remove_suffix(1);
  return absl::StrContains(line, word);
}

bool IsConstant(absl::string_view text) {
  return HasWord(text, "const") || HasWord(text, "constexpr");
}

// The words of a line's // comment; empty when it has none.
absl::string_view CommentOf(absl::string_view line, absl::string_view code) {
  const std::size_t last = code.find_last_not_of(' ');
  const std::size_t begin = line.find("//", last == absl::string_view::npos ? 0 : last + 1);
  if (begin == absl::string_view::npos) return "";
  return absl::StripLeadingAsciiWhitespace(line.substr(begin + 2));
}

// A variable, or a declaration of something else?
bool DeclaresVariable(const Statement& statement) {
  constexpr std::array<const char*, 11> kOthers{"operator", "using",   "typedef",  "static_assert",
                                                "friend",   "class",   "struct",   "enum",
                                                "union",    "concept", "namespace"};
  const absl::string_view text = statement.text;
  const absl::string_view declared = text.substr(0, text.find('='));
  const bool other = std::any_of(kOthers.begin(), kOthers.end(),
                                 [declared](const char* word) { return HasWord(declared, word); });
  return !other && !absl::StrContains(declared, '(') && absl::StrContains(text, ' ');
}

bool IsMutableStatic(const Statement& statement) {
  const absl::string_view text = statement.text;
  if (HasWord(text, "thread_local")) return true;
  if (IsConstant(text)) return false;
  switch (statement.inside) {
    case BlockKind::kNamespace:
      return DeclaresVariable(statement);
    case BlockKind::kType:
      return HasWord(text, "static") && DeclaresVariable(statement);
    case BlockKind::kFunction:
    case BlockKind::kInner:
      return absl::StartsWith(text, "static ");
    case BlockKind::kExpression:
      break;
  }
  return false;
}

}  // namespace

std::vector<BannedWord> ParseBannedWords(const std::vector<std::string>& lines) {
  std::vector<BannedWord> words;
  for (const std::string& line : lines) {
    if (line.empty() || line[0] == '#') continue;
    const std::vector<std::string> columns = absl::StrSplit(line, '\t', absl::SkipEmpty());
    if (columns.size() != 4) continue;
    std::vector<std::string> exempt = absl::StrSplit(columns[2], ' ', absl::SkipEmpty());
    words.push_back({columns[0], columns[1] == "code", std::move(exempt), columns[3]});
  }
  return words;
}

void CheckBannedWords(const SourceTree& tree, const std::vector<BannedWord>& words,
                      std::vector<Finding>* findings) {
  for (const SourceFile& file : tree.files()) {
    for (const BannedWord& word : words) {
      if (StartsWithAny(file.path, word.exempt)) continue;
      const std::vector<std::string>& lines = word.code_only ? file.code : file.lines;
      for (std::size_t i = 0; i < lines.size(); ++i) {
        if (!Mentions(lines[i], word.word) || IsExempt(lines[i], word.exempt)) continue;
        findings->push_back({file.path, static_cast<int>(i) + 1, "banned-word",
                             absl::StrCat("\"", word.word, "\": ", word.instead)});
      }
    }
  }
}

void CheckLengths(const SourceTree& tree, std::vector<Finding>* findings) {
  for (const SourceFile& file : tree.files()) {
    if (!file.IsCpp()) continue;
    const bool is_test = IsBelow(file.path, "tests");
    const std::size_t most = is_test           ? kTestLinesMax
                             : file.IsHeader() ? kHeaderLinesMax
                                               : kSourceLinesMax;
    if (file.lines.size() > most) {
      findings->push_back({file.path, static_cast<int>(file.lines.size()), "file-length",
                           absl::StrCat(file.lines.size(), " lines, at most ", most,
                                        "; split it by what it is responsible for")});
    }
    for (const Function& function : FindBlocks(file.code).functions) {
      if (function.length() <= kFunctionLinesMax) continue;
      findings->push_back({file.path, function.first_line, "function-length",
                           absl::StrCat(function.length(), " lines, at most ", kFunctionLinesMax,
                                        "; give its parts names of their own")});
    }
  }
}

void CheckMutableStatics(const SourceTree& tree, std::vector<Finding>* findings) {
  for (const SourceFile& file : tree.files()) {
    if (!file.IsCpp() || !IsProduct(file.path)) continue;
    for (const Statement& statement : FindBlocks(file.code).statements) {
      if (!IsMutableStatic(statement)) continue;
      findings->push_back({file.path, statement.line, "mutable-static",
                           "state that outlives its owner; make it const, or a member of what "
                           "main makes and hands down"});
    }
  }
}

void CheckSubjects(const SourceTree& tree, std::vector<Finding>* findings) {
  constexpr std::array<const char*, 5> kOpenings{"Of ", "What ", "Whose ", "In what ", "That of "};
  for (const SourceFile& file : tree.files()) {
    if (!file.IsCpp() || !IsProduct(file.path)) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const absl::string_view comment = CommentOf(file.lines[i], file.code[i]);
      const bool opens = std::any_of(
          kOpenings.begin(), kOpenings.end(),
          [comment](const char* opening) { return absl::StartsWith(comment, opening); });
      if (!opens) continue;
      findings->push_back({file.path, static_cast<int>(i) + 1, "no-subject",
                           absl::StrCat("\"", comment.substr(0, 40),
                                        "...\": begin with the subject and give it a verb")});
    }
  }
}

void CheckPragmaOnce(const SourceTree& tree, std::vector<Finding>* findings) {
  for (const SourceFile& file : tree.files()) {
    if (!file.IsHeader()) continue;
    const auto first = std::find_if(file.code.begin(), file.code.end(), [](const auto& line) {
      return line.find_first_not_of(" \t") != std::string::npos;
    });
    if (first != file.code.end() && absl::StartsWith(*first, "#pragma once")) continue;
    findings->push_back({file.path, static_cast<int>(first - file.code.begin()) + 1, "pragma-once",
                         "a header's first line of code is #pragma once"});
  }
}

}  // namespace switchyard::tidy
