#include "worker/source/gateway/gateway_choice.h"

#include <algorithm>

namespace switchyard {

void GatewayChoice::SetPlan(const Plan& plan) {
  others_.clear();
  for (const PlanWorker& worker : plan.workers) {
    if (std::find(named_.begin(), named_.end(), worker.endpoint) != named_.end()) continue;
    others_.push_back(worker.endpoint);
  }
}

std::string GatewayChoice::Next(const std::string& but) {
  if (size() > 1 && At(next_ % size()) == but) ++next_;
  // A plan may have become shorter since.
  next_ %= size();
  return At(next_++);
}

}  // namespace switchyard
