#include "ctl/output/times.h"

#include <array>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace switchyard::ctl {
namespace {

std::array<double, HistogramBounds::kBounds> SecondsOf(const HistogramBounds& bounds) {
  std::array<double, HistogramBounds::kBounds> seconds{};
  for (std::size_t i = 0; i < seconds.size(); ++i) {
    seconds[i] = static_cast<double>(bounds.upper[i]) / bounds.units_in_one;
  }
  return seconds;
}

}  // namespace

std::string SecondsText(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.0fus", seconds * 1e6);
  if (seconds < 1) return absl::StrFormat("%.1fms", seconds * 1e3);
  return absl::StrFormat("%.1fs", seconds);
}

std::string QuantileText(std::span<const double> bounds, std::span<const std::uint64_t> buckets,
                         bool is_time, double quantile) {
  const double value = switchyard::QuantileOf(bounds, buckets, quantile);
  const auto text = [is_time](double of) {
    return is_time ? SecondsText(of) : absl::StrFormat("%.1f", of);
  };
  if (std::isnan(value)) return "";
  return std::isinf(value) && !bounds.empty() ? absl::StrCat(">", text(bounds.back()))
                                              : text(value);
}

double QuantileOf(const HistogramCounts& times, double quantile) {
  return switchyard::QuantileOf(SecondsOf(*times.bounds), times.buckets, quantile);
}

std::string QuantileText(const HistogramCounts& times, double quantile) {
  return QuantileText(SecondsOf(*times.bounds), times.buckets, true, quantile);
}

}  // namespace switchyard::ctl
