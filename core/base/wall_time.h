// Wall time, for people. It may jump, so that nothing is decided by it: core/base/clock.h is for
// that.
#pragma once

#include <chrono>

namespace switchyard {

using WallTime = std::chrono::time_point<std::chrono::system_clock, std::chrono::milliseconds>;

inline WallTime ReadWallTime() {
  return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
}

}  // namespace switchyard
