// One step again and again on a thread of its own, for drills that change a deployment under load.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace switchyard::testing {

class StepLoad {
 public:
  // `step` runs one step; its errors are counted. What it uses outlives this object.
  explicit StepLoad(std::function<absl::Status()> step)
      : step_(std::move(step)), thread_([this] { Run(); }) {}
  ~StepLoad() { Stop(); }
  StepLoad(const StepLoad&) = delete;
  StepLoad& operator=(const StepLoad&) = delete;

  void Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }
  [[nodiscard]] int steps() const { return steps_; }
  [[nodiscard]] int failed() const { return failed_; }
  // How long the last step took.
  [[nodiscard]] Duration last() const { return Duration(last_); }
  // How long the step that is running has taken so far.
  [[nodiscard]] Duration age() const { return Now() - TimePoint(Duration(began_)); }
  // What 99 of 100 of the last steps took at most, without the first `from` ones; zero: there were
  // none.
  [[nodiscard]] Duration P99(int from = 0) const {
    const MutexLock lock(mutex_);
    if (static_cast<std::size_t>(from) >= times_.size()) return {};
    std::vector<Duration> times(times_.begin() + from, times_.end());
    const auto nth = times.begin() + static_cast<std::ptrdiff_t>(times.size() * 99 / 100);
    std::nth_element(times.begin(), nth, times.end());
    return *nth;
  }
  [[nodiscard]] absl::Status first_error() const {
    const MutexLock lock(mutex_);
    return first_error_;
  }

 private:
  static TimePoint Now() { return SteadyClock().Now(); }
  void Run() {
    while (!stop_) {
      began_ = Now().time_since_epoch().count();
      const absl::Status status = step_();
      last_ = age().count();
      ++steps_;
      const MutexLock lock(mutex_);
      times_.push_back(Duration(last_));
      if (status.ok()) continue;
      ++failed_;
      if (first_error_.ok()) first_error_ = status;
    }
  }

  const std::function<absl::Status()> step_;
  std::atomic<bool> stop_{false};
  std::atomic<int> steps_{0};
  std::atomic<int> failed_{0};
  std::atomic<std::int64_t> last_{0};
  std::atomic<std::int64_t> began_{0};
  mutable Mutex mutex_;
  std::vector<Duration> times_ SY_GUARDED_BY(mutex_);
  absl::Status first_error_ SY_GUARDED_BY(mutex_);
  std::thread thread_;  // last: starts when all above exists
};

}  // namespace switchyard::testing
