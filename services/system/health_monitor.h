// The health of a process: live (it works, and a restart would not help) and ready (it may be sent
// work). One answer for everyone who asks: HTTP, and the health service of gRPC.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "core/base/clock.h"
#include "core/base/mutex.h"

namespace switchyard {

// Each text is empty if the process is so; else one line that says what is missing and what to do.
struct Health {
  std::string not_live;
  std::string not_ready;  // also set while it is not live
  [[nodiscard]] bool live() const { return not_live.empty(); }
  [[nodiscard]] bool ready() const { return not_ready.empty(); }
};

// How long a loop may stand still before the process counts as dead. The same time after which
// plans do without a worker (CoordinatorOptions::stuck_thread): a loop that has something to do
// turns many times a second, and so does an idle one.
inline constexpr Duration kStandstillMax = std::chrono::seconds(10);

// Two looks that lie further apart show that the whole process was stopped or had no CPU.
inline constexpr Duration kLookGapMax = std::chrono::seconds(2);

// Tells a loop that stands still from one that turns, by a number that grows with each turn. Not
// thread-safe.
class TurnWatch {
 public:
  // Returns for how long `turns` has been the same. A gap of more than kLookGapMax begins anew:
  // the loop had no chance to turn meanwhile.
  Duration StandsStill(std::uint64_t turns, TimePoint now) {
    if (turns != turns_ || now - looked_ > kLookGapMax) since_ = now;
    turns_ = turns;
    looked_ = now;
    return now - since_;
  }

 private:
  std::uint64_t turns_ = 0;
  TimePoint since_{};
  TimePoint looked_{};
};

// Thread-safe.
class HealthMonitor {
 public:
  // `look` finds out: one thread at a time calls it, a thread of the monitor each `every`. It must
  // not block.
  explicit HealthMonitor(std::function<Health()> look,
                         Duration every = std::chrono::milliseconds(250));
  // Ends the thread. `publish` is not called after that.
  ~HealthMonitor();
  HealthMonitor(const HealthMonitor&) = delete;
  HealthMonitor& operator=(const HealthMonitor&) = delete;

  // Looks now.
  [[nodiscard]] Health Look();
  // Calls `publish` now, and from any thread that looks whenever the process has become live, ready
  // or the opposite. It must not block or call the monitor. Call it once.
  void Publish(std::function<void(const Health&)> publish);

 private:
  // Looks, and publishes a change.
  Health LookNow() SY_REQUIRES(mutex_);
  void Run();

  const std::function<Health()> look_;
  const Duration every_;
  Mutex mutex_;
  CondVar changed_;
  Health last_ SY_GUARDED_BY(mutex_);
  std::function<void(const Health&)> publish_ SY_GUARDED_BY(mutex_);
  bool stopping_ SY_GUARDED_BY(mutex_) = false;
  std::thread thread_;  // last: starts when all above exists
};

}  // namespace switchyard
