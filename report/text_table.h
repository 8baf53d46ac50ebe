// Text tables: columns are as wide as their widest cell and two spaces apart; an empty cell is "-".
//
// Widths are in UTF-8 characters, not bytes. Plain data; not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace switchyard {

// A table that is filled row by row and printed once.
class TextTable {
 public:
  explicit TextTable(std::vector<std::string> heads);

  // Adds a row with one cell for each head. Missing cells are empty, surplus ones are dropped.
  void Add(std::vector<std::string> cells);
  [[nodiscard]] std::size_t rows() const { return rows_.size(); }

  // Each line starts with `indent` and ends with a newline, without trailing spaces. The last
  // column is wrapped between words so that lines fit into `width` characters; 0: it is not
  // wrapped.
  [[nodiscard]] std::string Print(absl::string_view indent = "", std::size_t width = 0) const;

 private:
  std::vector<std::string> heads_;
  std::vector<std::vector<std::string>> rows_;
};

// Splits `text` between words into lines of at most `width` characters; a longer word gets its own
// line. Newlines stay line breaks. The result has at least one line. 0: only split at newlines.
std::vector<std::string> WrapWords(absl::string_view text, std::size_t width);

// A bullet list: "- " before each item, wrapped with hanging indent; every line starts with
// `indent`.
std::string Bullets(const std::vector<std::string>& items, absl::string_view indent,
                    std::size_t width);

// The number of UTF-8 characters in `text`.
std::size_t CharactersOf(absl::string_view text);

}  // namespace switchyard
