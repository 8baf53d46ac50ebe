// When a deployment may try the next change: at once, or after a delay that doubles with each
// failure in a row. Without it a change that fails for a lasting reason (a full disk, a corrupt
// tensor) would keep every worker busy loading weights. Not thread-safe.
#pragma once

#include <algorithm>

#include "coordinator/spec/options.h"
#include "core/base/clock.h"

namespace switchyard {

class RetryDelay {
 public:
  // `options` outlives it.
  explicit RetryDelay(const CoordinatorOptions* options) : options_(options) {}

  // After a failure: waits for retry_first, doubled for each failure before it, up to retry_last.
  void BackOff(TimePoint now) {
    Duration delay = options_->retry_first;
    for (int i = 0; i < failures_ && delay < options_->retry_last; ++i) delay *= 2;
    ++failures_;
    due_at_ = now + std::min(delay, options_->retry_last);
  }
  // The cause of the last failure may have gone away: the next try is due now. If it fails, the
  // delay still grows. After kSkipsMax failures in a row the delay stays: otherwise a worker that
  // crashes again and again, each time under another name, would keep all others loading.
  void SkipDelay() {
    if (failures_ <= kSkipsMax) due_at_ = {};
  }
  // After a success.
  void Reset() {
    failures_ = 0;
    due_at_ = {};
  }

  // True when the next try may start.
  [[nodiscard]] bool IsDue(TimePoint now) const { return now >= due_at_; }
  // For a write that is repeated with the same delay.
  [[nodiscard]] TimePoint due_at() const { return due_at_; }

 private:
  static constexpr int kSkipsMax = 3;

  const CoordinatorOptions* options_;
  int failures_ = 0;  // in a row
  TimePoint due_at_;
};

}  // namespace switchyard
