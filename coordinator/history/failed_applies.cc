#include "coordinator/history/failed_applies.h"

#include <algorithm>

namespace switchyard {

void FailedApplies::Add(const DeploymentSpec& spec, const absl::Status& why, WallTime now) {
  all_[spec.name] = {spec, why, now};
  if (all_.size() <= max_) return;
  all_.erase(
      std::ranges::min_element(all_, {}, [](const auto& entry) { return entry.second.when; }));
}

}  // namespace switchyard
