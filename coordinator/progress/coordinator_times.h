// How the changes and applies of a coordinator have ended since it started, and how long they took.
// Plain values: they are parts of the view.
#pragma once

#include <cstdint>

#include "core/base/histogram.h"

namespace switchyard {

// How the changes of a deployment's plan have ended.
struct ChangeCounts {
  std::uint64_t served = 0;
  std::uint64_t failed = 0;  // given up: refused, timed out, or a worker was lost
};

// The times of all deployments together.
struct CoordinatorTimes {
  HistogramCounts change_served{&kLongDurationBounds};  // from its begin until its epoch serves
  HistogramCounts change_failed{&kLongDurationBounds};  // until it is given up
  // These two count applies and rollbacks, but no dry runs, from the request to the answer.
  HistogramCounts applied{&kLongDurationBounds};
  HistogramCounts refused{&kLongDurationBounds};
};

}  // namespace switchyard
