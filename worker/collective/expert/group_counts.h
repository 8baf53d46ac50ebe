// Counts the steps of a worker's groups since the process started. Thread-safe; written by the
// follower's thread and by those of the device, read by a scrape.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/base/histogram.h"
#include "worker/device/exchange.h"

namespace switchyard {

struct GroupCounts {
  std::atomic<std::uint64_t> steps{0};   // that have ended as results
  std::atomic<std::uint64_t> failed{0};  // that are no results, or did not begin
  Histogram step;                        // from the begin of this worker's part until it has ended
  ExchangeCounts exchange;
  std::atomic<bool> has_rows{true};  // false: some device does not tell of `exchange`
};

}  // namespace switchyard
