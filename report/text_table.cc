#include "report/text_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace switchyard {
namespace {

constexpr std::size_t kGap = 2;  // spaces between columns
// Minimum width of the last column. In a narrow terminal, lines that are too long are easier to
// read than a column of single words.
constexpr std::size_t kLastColumnLeast = 24;

std::string Padded(const std::string& cell, std::size_t width) {
  const std::size_t has = CharactersOf(cell);
  std::string padded = cell;
  if (has < width) padded.append(width - has, ' ');
  return padded;
}

}  // namespace

// Counts the bytes that start a character: continuation bytes have the form 10xxxxxx.
std::size_t CharactersOf(absl::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) >> 6) != 2; }));
}

std::vector<std::string> WrapWords(absl::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (const absl::string_view paragraph : absl::StrSplit(text, '\n')) {
    // No limit: scripts get one line for each row.
    if (width == 0) {
      lines.emplace_back(paragraph);
      continue;
    }
    std::string line;
    for (const absl::string_view word : absl::StrSplit(paragraph, ' ', absl::SkipEmpty())) {
      if (!line.empty() && CharactersOf(line) + 1 + CharactersOf(word) > width) {
        lines.push_back(std::move(line));
        line.clear();
      }
      if (!line.empty()) line.push_back(' ');
      absl::StrAppend(&line, word);
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string Bullets(const std::vector<std::string>& items, absl::string_view indent,
                    std::size_t width) {
  constexpr absl::string_view kMark = "- ";
  const std::size_t taken = CharactersOf(indent) + kMark.size();
  const std::size_t room = width == 0 ? 0 : std::max(width, taken + kLastColumnLeast) - taken;
  std::string out;
  for (const std::string& item : items) {
    absl::string_view before = kMark;
    for (const std::string& line : WrapWords(item, room)) {
      absl::StrAppend(&out, indent, before, line, "\n");
      before = "  ";
    }
  }
  return out;
}

TextTable::TextTable(std::vector<std::string> heads) : heads_(std::move(heads)) {}

void TextTable::Add(std::vector<std::string> cells) {
  cells.resize(heads_.size());
  for (std::string& cell : cells) {
    // An empty cell would make the columns after it ambiguous for a reader and for scripts.
    if (cell.empty()) cell.push_back('-');
  }
  rows_.push_back(std::move(cells));
}

std::string TextTable::Print(absl::string_view indent, std::size_t width) const {
  const std::size_t last = heads_.size() - 1;
  std::vector<std::size_t> widths;
  std::size_t before_last = CharactersOf(indent);
  // The last column is not padded, so it does not count into the widths.
  for (std::size_t c = 0; c < last; ++c) {
    std::size_t widest = CharactersOf(heads_[c]);
    for (const auto& row : rows_) widest = std::max(widest, CharactersOf(row[c]));
    widths.push_back(widest);
    before_last += widest + kGap;
  }
  const std::size_t room = width == 0                                ? 0
                           : width >= before_last + kLastColumnLeast ? width - before_last
                                                                     : kLastColumnLeast;
  std::string out;
  const auto print = [&](const std::vector<std::string>& cells) {
    const std::vector<std::string> lines = WrapWords(cells[last], room);
    for (std::size_t l = 0; l < lines.size(); ++l) {
      std::string line(indent);
      for (std::size_t c = 0; c < last; ++c) {
        absl::StrAppend(&line, Padded(l == 0 ? cells[c] : "", widths[c] + kGap));
      }
      absl::StrAppend(&line, lines[l]);
      // Tables are pasted into documents and compared with goldens.
      absl::StripTrailingAsciiWhitespace(&line);
      absl::StrAppend(&out, line, "\n");
    }
  };
  print(heads_);
  for (const auto& row : rows_) print(row);
  return out;
}

}  // namespace switchyard
