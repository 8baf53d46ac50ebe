// Remembers for a while which experts a worker had that left the plan, so that a worker that
// restarts gets its own back: its page cache or disk may still have them. Not thread-safe.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/placement/placement_policy.h"
#include "core/base/clock.h"
#include "core/plan.h"

namespace switchyard {

// The experts that `plan` puts on each of its workers; index = WorkerOrdinal, each list ascending.
std::vector<std::vector<LayerExpert>> SharesIn(const Plan& plan);

class FormerShares {
 public:
  // `kept_for`: how long the share of a worker that left the plan is remembered.
  explicit FormerShares(Duration kept_for) : kept_for_(kept_for) {}

  // `next` replaces `before` (null: none) at `now`. Remembers the workers that it leaves out.
  void OnReplaced(const Plan* before, const Plan& next, TimePoint now);
  // Empty for a worker that is unknown or was left out too long ago.
  [[nodiscard]] std::vector<LayerExpert> Of(const std::string& worker, TimePoint now) const;

 private:
  struct Share {
    std::vector<LayerExpert> experts;
    TimePoint left_at;
  };
  Duration kept_for_;
  // Bounded by kept_for_ and kSharesMax.
  std::map<std::string, Share> shares_;
};

}  // namespace switchyard
