// Strikes against workers that make changes fail, and how long a worker is then left out of plans.
//
// One failure is no reason to do without a worker: the checkpoint's disk may have been slow. From
// the second failure on, the worker is excluded for a time that doubles up to a limit, so that a
// worker that never succeeds cannot keep the others from serving. An exclusion is advice: the
// planner ignores it where the model cannot be placed without the worker
// (coordinator/plan_proposal.h). Not thread-safe.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "coordinator/spec/options.h"
#include "core/base/clock.h"

namespace switchyard {

class Quarantine {
 public:
  // `options` outlives it.
  explicit Quarantine(const CoordinatorOptions* options) : options_(options) {}

  // `worker` made a change fail. `why` is the text that View and left-out lists show.
  void Strike(const std::string& worker, const std::string& why, TimePoint now);
  // `worker` is in a plan that serves: its strikes are void.
  void Clear(const std::string& worker) { strikes_.erase(worker); }

  // Ends the exclusions that are over. True when one ended, so that a new plan may include the
  // worker. Its strikes stay: the next failure excludes it for longer.
  bool EndExclusions(TimePoint now);
  // Forgets workers that are not excluded and whose last failure is older than the longest
  // exclusion. Bounds the table, since worker ids come and go.
  void ForgetOld(TimePoint now);

  [[nodiscard]] bool IsExcluded(const std::string& worker, TimePoint now) const;
  // Why the last change with `worker` failed; empty when there is no strike.
  [[nodiscard]] std::string ReasonFor(const std::string& worker) const;

 private:
  // Kept by id and not by incarnation: a worker that restarts often is the one to leave out.
  struct Strikes {
    int count = 0;
    TimePoint last_at;
    std::optional<TimePoint> excluded_until;
    std::string why;  // of the last one
  };

  const CoordinatorOptions* options_;
  std::map<std::string, Strikes> strikes_;
};

}  // namespace switchyard
