// Time: monotonic, injected, never read from a global.
//
// Sans-I/O cores take `now` as an argument and hold no Clock; loops and threads hold one.
// Nothing here gives wall time.
#pragma once

#include <chrono>

namespace switchyard {

using Duration = std::chrono::nanoseconds;
// Monotonic nanoseconds since an arbitrary start of this process (or simulation).
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

class Clock {
 public:
  virtual ~Clock() = default;
  // Thread-safe.
  [[nodiscard]] virtual TimePoint Now() const = 0;
};

// The machine's monotonic clock.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] TimePoint Now() const override;
};

// Moves only when a test advances it. Not thread-safe.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] TimePoint Now() const override { return now_; }
  void Advance(Duration by) { now_ += by; }

 private:
  TimePoint now_{};
};

}  // namespace switchyard
