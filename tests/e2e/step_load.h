// One step again and again on a thread of its own, for drills that change a deployment under load.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>

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
      if (status.ok()) continue;
      ++failed_;
      const MutexLock lock(mutex_);
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
  absl::Status first_error_ SY_GUARDED_BY(mutex_);
  std::thread thread_;  // last: starts when all above exists
};

}  // namespace switchyard::testing
