// The pages of the documentation as the tests read them: lines, tables and quoted words.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "tests/tidy/source_tree.h"

namespace switchyard::docs {

const tidy::SourceTree& Repository();

// README.md and every page below docs/.
std::vector<const tidy::SourceFile*> Pages();

// The lines of a file of the repository; none when it is not there.
std::vector<std::string> LinesOf(absl::string_view path);

// The texts of a line between each `open` and the next `close`.
std::vector<std::string> Between(const std::string& line, const std::string& open,
                                 const std::string& close);

// The cells of a table row, trimmed and without backticks around a whole cell. Empty for any other
// line and for the line under the heads.
std::vector<std::string> Cells(const std::string& line);

using Table = std::vector<std::vector<std::string>>;  // rows of cells, without the heads
// Every row of a page that stands below a head with exactly these cells.
Table TableBelow(absl::string_view path, const std::vector<std::string>& heads);

// "Suite.Name" of every test in the tree -> its file. Suites that are instantiated with parameters
// have their own name, without prefix and parameter.
const std::map<std::string, std::string>& Tests();

}  // namespace switchyard::docs
