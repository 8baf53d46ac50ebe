#include "core/format/calc_diff.h"

#include <cstddef>

namespace switchyard {

void DiffSums::Add(std::span<const float> x, std::span<const float> y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    // In double, because a sum of thousands of FP32 squares would lose the differences that are
    // measured.
    const auto a = static_cast<double>(x[i]);
    const auto b = static_cast<double>(y[i]);
    products += a * b;
    squares += a * a + b * b;
  }
}

void DiffSums::Add(const DiffSums& other) {
  products += other.products;
  squares += other.squares;
}

double DiffSums::Diff() const {
  // Both sides are all zeros, hence equal; the quotient would be NaN.
  if (squares == 0) return 0;
  return 1 - 2 * products / squares;
}

double CalcDiff(std::span<const float> x, std::span<const float> y) {
  DiffSums sums;
  sums.Add(x, y);
  return sums.Diff();
}

}  // namespace switchyard
