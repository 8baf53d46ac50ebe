// Tells how long steps took at this worker, from the histograms that its threads write anyway.
//
// The times are those of the whole process: the histograms do not know of deployments.
#pragma once

#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/work_times.h"
#include "worker/collective/expert/group_counts.h"
#include "worker/expert/expert_times.h"

namespace switchyard {

// Since the process started, by kind; kinds without steps are left out. `groups` may be null.
// Thread-safe; a thousand loads.
[[nodiscard]] std::vector<WorkTimes> TotalWorkTimes(const ExpertTimes& experts,
                                                    const GroupCounts* groups);

// Thread-safe.
class WorkMeter {
 public:
  // Returns what `total` has at `now` beyond that of the last call that was not too early.
  // Empty if that was less than a second ago, or if there were no steps.
  [[nodiscard]] std::vector<WorkTimes> Take(std::vector<WorkTimes> total, TimePoint now);

 private:
  Mutex mutex_;
  std::vector<WorkTimes> reported_ SY_GUARDED_BY(mutex_);
  TimePoint next_ SY_GUARDED_BY(mutex_){};
};

}  // namespace switchyard
