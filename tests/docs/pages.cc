#include "tests/docs/pages.h"

#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace switchyard::docs {

using tidy::SourceFile;
using tidy::SourceTree;

namespace {

std::map<std::string, std::string> FindTests() {
  std::map<std::string, std::string> found;
  const std::regex head(R"(TEST(?:_F|_P)?\((\w+),\s*(\w+)\))");
  for (const SourceFile& file : Repository().files()) {
    if (!tidy::IsBelow(file.path, "tests") || !file.IsCpp()) continue;
    for (const std::string& line : file.code) {
      std::smatch match;
      if (!std::regex_search(line, match, head)) continue;
      found[absl::StrCat(match.str(1), ".", match.str(2))] = file.path;
    }
  }
  return found;
}

}  // namespace

const SourceTree& Repository() {
  static const SourceTree tree(SWITCHYARD_SOURCE_DIR);
  return tree;
}

std::vector<const SourceFile*> Pages() {
  std::vector<const SourceFile*> pages;
  for (const SourceFile& file : Repository().files()) {
    const bool is_page = tidy::IsBelow(file.path, "docs") || file.path == "README.md";
    if (is_page && absl::EndsWith(file.path, ".md")) pages.push_back(&file);
  }
  return pages;
}

std::vector<std::string> LinesOf(absl::string_view path) {
  const SourceFile* file = Repository().Find(std::string(path));
  return file == nullptr ? std::vector<std::string>() : file->lines;
}

std::vector<std::string> Between(const std::string& line, const std::string& open,
                                 const std::string& close) {
  std::vector<std::string> found;
  for (std::size_t at = line.find(open); at != std::string::npos;) {
    const std::size_t begin = at + open.size();
    const std::size_t end = line.find(close, begin);
    if (end == std::string::npos) break;
    found.push_back(line.substr(begin, end - begin));
    at = line.find(open, end + close.size());
  }
  return found;
}

std::vector<std::string> Cells(const std::string& line) {
  if (!absl::StartsWith(line, "|") || absl::StartsWith(line, "|-")) return {};
  std::vector<std::string> cells = absl::StrSplit(line, '|');
  cells.erase(cells.begin());
  cells.pop_back();
  for (std::string& cell : cells) {
    cell = std::string(absl::StripAsciiWhitespace(cell));
    const bool quoted = cell.size() > 2 && cell.front() == '`' && cell.back() == '`';
    if (quoted && cell.find('`', 1) == cell.size() - 1) cell = cell.substr(1, cell.size() - 2);
  }
  return cells;
}

Table TableBelow(absl::string_view path, const std::vector<std::string>& heads) {
  Table rows;
  bool inside = false;
  for (const std::string& line : LinesOf(path)) {
    if (!absl::StartsWith(line, "|")) inside = false;
    std::vector<std::string> cells = Cells(line);
    if (cells == heads) {
      inside = true;
    } else if (inside && !cells.empty()) {
      rows.push_back(std::move(cells));
    }
  }
  return rows;
}

const std::map<std::string, std::string>& Tests() {
  static const std::map<std::string, std::string> tests = FindTests();
  return tests;
}

}  // namespace switchyard::docs
