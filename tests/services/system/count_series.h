// Counts the samples of a text in Prometheus' format.
#pragma once

#include <cstddef>
#include <string>

namespace switchyard::testing {

inline std::size_t CountSeries(const std::string& text) {
  std::size_t count = 0;
  bool is_start = true;
  for (const char c : text) {
    if (is_start && c != '#') ++count;
    is_start = c == '\n';
  }
  return count;
}

}  // namespace switchyard::testing
