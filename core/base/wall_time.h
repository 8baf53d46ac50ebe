// Wall time, for people. It may jump, so that nothing is decided by it: core/base/clock.h is for
// that.
#pragma once

#include <chrono>

#include "core/base/clock.h"

namespace switchyard {

using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::milliseconds>;

inline WallTime ReadWallTime() {
  return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

// Returns what has to be added to a time of the steady clock for nanoseconds since 1970: to a
// fraction of a microsecond, unless the thread is interrupted at each try.
inline Duration WallOfSteadyClock() {
  Duration least = Duration::max();
  Duration offset{};
  // The two clocks cannot be read at once. Of several readings the one counts around which the
  // least time passed.
  for (int i = 0; i < 5; ++i) {
    const Duration before = std::chrono::steady_clock::now().time_since_epoch();
    const Duration wall = std::chrono::system_clock::now().time_since_epoch();
    const Duration window = std::chrono::steady_clock::now().time_since_epoch() - before;
    if (window >= least) continue;
    least = window;
    offset = wall - (before + window / 2);
  }
  return offset;
}

}  // namespace switchyard
