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
  if (size() > 1 && Peek() == but) Advance();
  std::string next = Peek();
  Advance();
  return next;
}

const std::string& GatewayChoice::Peek() const {
  // A plan may have become shorter since.
  if (other_is_next_ && !others_.empty()) return others_[next_other_ % others_.size()];
  return named_[next_named_ % named_.size()];
}

void GatewayChoice::Advance() {
  ++(other_is_next_ && !others_.empty() ? next_other_ : next_named_);
  other_is_next_ = !other_is_next_;
}

}  // namespace switchyard
