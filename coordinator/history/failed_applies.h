// Applies that failed after they were answered: what operators see of them. Not thread-safe.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "absl/status/status.h"

#include "coordinator/spec/deployment.h"
#include "core/base/wall_time.h"

namespace switchyard {

class FailedApplies {
 public:
  // Keeps at most `max`, without those of deployments that exist: the oldest goes.
  explicit FailedApplies(std::size_t max) : max_(max) {}

  void Add(const DeploymentSpec& spec, const absl::Status& why, WallTime now);
  // The name is applied again, or deleted. False: it had none.
  bool Remove(const std::string& deployment) { return all_.erase(deployment) > 0; }
  struct Failed {
    DeploymentSpec spec;
    absl::Status why;
    WallTime when;
  };
  [[nodiscard]] const std::map<std::string, Failed>& all() const { return all_; }

 private:
  const std::size_t max_;
  std::map<std::string, Failed> all_;
};

}  // namespace switchyard
