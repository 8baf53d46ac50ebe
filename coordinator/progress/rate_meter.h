// How fast a count of bytes grows, by the coordinator's clock: over the last 15 seconds, so that
// neither one slow expert nor a pause long ago decides. Bounded. Not thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>

#include "core/base/clock.h"

namespace switchyard {

class RateMeter {
 public:
  // The count is now `count`. A count that falls is of another attempt and starts anew.
  void Add(std::int64_t count, TimePoint now);
  // The last one; 0 before the first.
  [[nodiscard]] std::int64_t count() const { return samples_.empty() ? 0 : samples_.back().count; }

  // 0 while nothing moves or too little is known.
  [[nodiscard]] std::int64_t PerSecond(TimePoint now) const;
  // Until the count is `total` at this rate; nullopt while nothing moves or too little is known, or
  // for more than a month.
  [[nodiscard]] std::optional<Duration> Left(std::int64_t total, TimePoint now) const;
  // For how long the count has stood still.
  [[nodiscard]] Duration Still(TimePoint now) const;

 private:
  static constexpr Duration kWindow = std::chrono::seconds(15);
  // Counts that come more often take each other's place.
  static constexpr Duration kSpacing = std::chrono::milliseconds(400);

  struct Sample {
    TimePoint at;
    std::int64_t count = 0;
  };
  std::deque<Sample> samples_;  // ascending; at most kWindow / kSpacing and a few
  TimePoint moved_at_;
};

}  // namespace switchyard
