// Time: monotonic, injected, never read from a global.
//
// Sans-I/O cores take `now` as an argument and hold no Clock; loops and threads hold one.
// Nothing here gives wall time.
#pragma once

#include <chrono>

namespace switchyard {

// One unit everywhere: mixing milliseconds and nanoseconds is a bug that compiles.
using Duration = std::chrono::nanoseconds;
// Monotonic nanoseconds since an arbitrary start of this process (or simulation).
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

// The source of `now` for code with a loop of its own.
class Clock {
 public:
  virtual ~Clock() = default;
  // Never falls. Thread-safe, unless an implementation says otherwise.
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
