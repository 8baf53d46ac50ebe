#include "coordinator/placement/former_shares.h"

#include <algorithm>
#include <utility>

namespace switchyard {
namespace {

// Pods whose names never come back must not fill the memory within kept_for_.
constexpr std::size_t kSharesMax = 256;

}  // namespace

std::vector<std::vector<LayerExpert>> SharesIn(const Plan& plan) {
  std::vector<std::vector<LayerExpert>> shares(plan.workers.size());
  for (const LayerPlacement& layer : plan.layers) {
    for (const PhysicalExpert& physical : layer.experts) {
      shares[static_cast<std::size_t>(physical.worker.value)].push_back(
          {layer.layer, physical.expert});
    }
  }
  // Slots need not ascend with experts.
  for (std::vector<LayerExpert>& share : shares) std::sort(share.begin(), share.end());
  return shares;
}

void FormerShares::OnReplaced(const Plan* before, const Plan& next, TimePoint now) {
  std::erase_if(shares_, [&](const auto& entry) {
    return now - entry.second.left_at >= kept_for_ || next.FindWorker(entry.first).has_value();
  });
  if (before == nullptr) return;
  std::vector<std::vector<LayerExpert>> shares = SharesIn(*before);
  for (std::size_t w = 0; w < shares.size(); ++w) {
    const std::string& id = before->workers[w].id;
    if (next.FindWorker(id).has_value() || shares_.size() >= kSharesMax) continue;
    shares_[id] = {std::move(shares[w]), now};
  }
}

std::vector<LayerExpert> FormerShares::Of(const std::string& worker, TimePoint now) const {
  const auto it = shares_.find(worker);
  const bool known = it != shares_.end() && now - it->second.left_at < kept_for_;
  return known ? it->second.experts : std::vector<LayerExpert>{};
}

}  // namespace switchyard
