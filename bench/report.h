// The figures of a run: a table for people, one JSON object for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace switchyard::bench {

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
  std::optional<double> at_most{};  // bounds that it is held to; none: for information
  std::optional<double> at_least{};
  std::string floor{};  // what it is measured against, in words and numbers

  [[nodiscard]] bool met() const {
    return (!at_most || value <= *at_most) && (!at_least || value >= *at_least);
  }
};

// Prints each figure as it comes.
class Report {
 public:
  void Add(Figure figure);
  [[nodiscard]] bool all_met() const;
  [[nodiscard]] std::string Json() const;

 private:
  std::vector<Figure> figures_;
};

}  // namespace switchyard::bench
