#include "core/base/histogram.h"

#include <limits>
#include <numeric>

namespace switchyard {

double QuantileOf(std::span<const double> bounds, std::span<const std::uint64_t> buckets,
                  double quantile) {
  const double all = std::accumulate(buckets.begin(), buckets.end(), 0.0);
  if (all == 0) return std::numeric_limits<double>::quiet_NaN();
  const double rank = quantile * all;
  double below = 0;
  for (std::size_t i = 0; i < bounds.size() && i < buckets.size(); ++i) {
    const auto here = static_cast<double>(buckets[i]);
    if (here > 0 && below + here >= rank) {
      const double from = i == 0 ? 0 : bounds[i - 1];
      return from + (bounds[i] - from) * (rank - below) / here;
    }
    below += here;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace switchyard
