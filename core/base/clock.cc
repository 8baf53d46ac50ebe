#include "core/base/clock.h"

namespace switchyard {

TimePoint SteadyClock::Now() const {
  return std::chrono::time_point_cast<Duration>(std::chrono::steady_clock::now());
}

}  // namespace switchyard
