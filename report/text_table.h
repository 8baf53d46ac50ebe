// Tables for people: columns as wide as their widest cell, two spaces apart, an empty cell as "-".
//
// Widths count characters of UTF-8, not bytes. Plain data; not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace switchyard {

class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heads);

  // As many cells as there are heads; missing ones are empty, more than that are dropped.
  void Add(std::vector<std::string> cells);
  [[nodiscard]] std::size_t rows() const { return rows_.size(); }

  // Each line begins with `indent` and ends with a newline, without blanks before it. The last
  // column is wrapped at words so that lines keep within `width` characters; 0: it is not wrapped.
  [[nodiscard]] std::string Print(absl::string_view indent = "", std::size_t width = 0) const;

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
};

// `text` cut at blanks into lines of at most `width` characters; a longer word has a line to
// itself. Newlines in it stay. Never empty. 0: only the newlines count.
std::vector<std::string> WrapWords(absl::string_view text, std::size_t width);

// Each item behind "- ", wrapped under itself; every line begins with `indent`.
std::string Bullets(const std::vector<std::string>& items, absl::string_view indent,
                    std::size_t width);

// Characters of `text`, taken as UTF-8.
std::size_t CharactersOf(absl::string_view text);

}  // namespace switchyard
