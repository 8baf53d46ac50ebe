// Clock and statistics of the benchmarks.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace switchyard::bench {

// A benchmark that cannot be set up says why and ends the process with 2.
inline void OrExit(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(2);
}
template <typename T>
T OrExit(absl::StatusOr<T> value) {
  OrExit(value.status());
  return std::move(value).value();
}

template <typename Work>
double SecondsOf(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// `part` in [0, 1]; of at least one value.
inline double Quantile(std::vector<double> values, double part) {
  std::ranges::sort(values);
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}
inline double Median(std::vector<double> values) { return Quantile(std::move(values), 0.5); }

// Median of a[i] / b[i]: both were measured in turn, so what slowed one slowed the other.
inline double MedianRatio(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < a.size(); ++i) ratios.push_back(a[i] / b[i]);
  return Median(std::move(ratios));
}

}  // namespace switchyard::bench
