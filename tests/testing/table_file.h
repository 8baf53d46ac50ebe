// Reads the tab-separated tables that tests are held against.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace switchyard::testing {

// The rows of tests/reference/tables/`name` below `root`, without comment lines; empty when there
// is no such file. Tests say how many rows they expect.
inline std::vector<std::vector<std::string>> ReadTable(const std::string& root,
                                                       const std::string& name) {
  std::ifstream in(root + "/tests/reference/tables/" + name);
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    rows.push_back(absl::StrSplit(line, '\t'));
  }
  return rows;
}

inline std::uint32_t FromHex(const std::string& text) {
  return static_cast<std::uint32_t>(std::strtoul(text.c_str(), nullptr, 16));
}

// "0a1bff" in elements of sizeof(T) bytes, the highest digit first within one.
template <typename T>
std::vector<T> ElementsFromHex(absl::string_view text) {
  constexpr std::size_t kDigits = 2 * sizeof(T);
  std::vector<T> elements;
  for (std::size_t at = 0; at + kDigits <= text.size(); at += kDigits) {
    elements.push_back(static_cast<T>(FromHex(std::string(text.substr(at, kDigits)))));
  }
  return elements;
}

}  // namespace switchyard::testing
