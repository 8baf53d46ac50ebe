// calc_diff: the project's measure of how far two tensors are apart.
//
// 1 - 2 sum(xy) / sum(x^2 + y^2), in double: 0 for equal tensors, about half the squared relative
// error for near ones. Two all-zero tensors are equal; a NaN on either side gives NaN, which no
// bound admits when it is tested as `diff <= bound`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace switchyard::testing {

// Over all elements (pooled). The spans have one length.
template <typename X, typename Y>
double CalcDiff(std::span<const X> x, std::span<const Y> y) {
  double products = 0;
  double squares = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto a = static_cast<double>(x[i]);
    const auto b = static_cast<double>(y[i]);
    products += a * b;
    squares += a * a + b * b;
  }
  if (squares == 0) return 0;
  return 1.0 - 2.0 * products / squares;
}

template <typename X, typename Y>
double CalcDiff(const std::vector<X>& x, const std::vector<Y>& y) {
  return CalcDiff(std::span<const X>(x), std::span<const Y>(y));
}

// The same of x + 1 and y + 1: the measure of the GPU libraries, whose published limits it is for.
// The shift swamps small values, so it is the weaker one.
template <typename X, typename Y>
double CalcDiffShifted(const std::vector<X>& x, const std::vector<Y>& y) {
  std::vector<double> shifted_x(x.begin(), x.end());
  std::vector<double> shifted_y(y.begin(), y.end());
  for (double& value : shifted_x) value += 1.0;
  for (double& value : shifted_y) value += 1.0;
  return CalcDiff(shifted_x, shifted_y);
}

// One value for each row of [rows, columns].
template <typename X, typename Y>
std::vector<double> CalcDiffRows(const std::vector<X>& x, const std::vector<Y>& y,
                                 std::size_t columns) {
  std::vector<double> diffs;
  for (std::size_t at = 0; at + columns <= x.size(); at += columns) {
    diffs.push_back(CalcDiff(std::span<const X>(x).subspan(at, columns),
                             std::span<const Y>(y).subspan(at, columns)));
  }
  return diffs;
}

// The largest of CalcDiffRows; NaN if any is NaN; 0 without rows.
template <typename X, typename Y>
double CalcDiffWorstRow(const std::vector<X>& x, const std::vector<Y>& y, std::size_t columns) {
  double worst = 0;
  for (const double diff : CalcDiffRows(x, y, columns)) {
    if (std::isnan(diff)) return diff;
    worst = std::max(worst, diff);
  }
  return worst;
}

}  // namespace switchyard::testing
