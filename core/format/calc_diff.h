// calc_diff(x, y) = 1 - 2 * sum(x * y) / sum(x^2 + y^2): 0 when equal, about half the squared
// relative error when close. The bounds of kernels, layers and schemes are given in this measure.
// Source: the tests of DeepGEMM and DeepEP, which shift both sides by 1; this one does not.
#pragma once

#include <span>

namespace switchyard {

// Sums in double; parts may be pooled by adding them.
// The sums of one or several parts, from which the measure follows. Plain data.
struct DiffSums {
  double products = 0;
  double squares = 0;

  void Add(std::span<const float> x, std::span<const float> y);
  void Add(const DiffSums& other);
  // 0 when both sides are all zeros; NaN when either holds a NaN or an infinity.
  [[nodiscard]] double Diff() const;
};

// For two spans of equal length.
double CalcDiff(std::span<const float> x, std::span<const float> y);

}  // namespace switchyard
