// Counts what became of the traces of this process so far.
#pragma once

#include <cstdint>

namespace switchyard {

// A record is of one part of a step, and makes up to four spans.
struct TraceCounts {
  std::uint64_t exported = 0;  // spans that the collector took
  std::uint64_t failed = 0;    // spans that it did not take, or not in time
  std::uint64_t dropped = 0;   // records that found their ring full
};

}  // namespace switchyard
