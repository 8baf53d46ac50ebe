// Virtual time: what happens is a function to be run at a time, in the order of (time, asked).
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "core/base/clock.h"

namespace switchyard::sim {

class Scheduler {
 public:
  [[nodiscard]] TimePoint now() const { return now_; }
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

  // Not before now.
  void At(TimePoint when, std::function<void()> what) {
    queue_.push({std::max(when, now_), ++asked_, std::move(what)});
  }
  void After(Duration delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }

  // Everything up to `end`; stops early when `stop` says so.
  void RunUntil(TimePoint end, const std::function<bool()>& stop) {
    while (!queue_.empty() && queue_.top().when <= end && !stop()) {
      Entry entry = std::move(const_cast<Entry&>(queue_.top()));
      queue_.pop();
      now_ = entry.when;
      ++steps_;
      entry.what();
    }
    if (!stop()) now_ = std::max(now_, end);
  }

 private:
  struct Entry {
    TimePoint when;
    std::uint64_t order;
    std::function<void()> what;
    bool operator<(const Entry& other) const {
      return when != other.when ? when > other.when : order > other.order;
    }
  };
  TimePoint now_{};
  std::uint64_t asked_ = 0;
  std::uint64_t steps_ = 0;
  std::priority_queue<Entry> queue_;
};

}  // namespace switchyard::sim
