// The reports of one worker about the epochs that it prepares, with the rate at which it goes on.
// Bounded, whatever the worker says. Not thread-safe.
#pragma once

#include <vector>

#include "coordinator/progress/rate_meter.h"
#include "core/base/clock.h"
#include "core/control_messages.h"

namespace switchyard {

class StagingMeters {
 public:
  struct Metered {
    StagingReport report;
    RateMeter bytes;
    [[nodiscard]] bool complete() const { return report.experts_done == report.experts; }
  };

  // A heartbeat said `reports`. Epochs that it does not name are forgotten. Reports that contradict
  // themselves are dropped, and those beyond kStagingReportsMax.
  void Update(const std::vector<StagingReport>& reports, TimePoint now);
  // nullptr: the worker says nothing about it. Valid until the next Update.
  [[nodiscard]] const Metered* Find(const EpochKey& key) const;
  // The epoch that the worker loads; nullptr: none. As Find.
  [[nodiscard]] const Metered* Loading() const;
  [[nodiscard]] const std::vector<Metered>& all() const { return all_; }

 private:
  std::vector<Metered> all_;  // in the worker's order
};

}  // namespace switchyard
