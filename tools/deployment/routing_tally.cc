#include "tools/deployment/routing_tally.h"

#include <set>

#include "absl/strings/str_format.h"

#include "core/format/wire_format.h"

namespace switchyard::qwen3_moe {

RoutingTally::RoutingTally(const Plan& plan, Phase phase, DispatchMode mode, std::string own_worker)
    : mode_(mode),
      bf16_row_bytes_(2 * static_cast<std::uint64_t>(plan.shape.hidden)),
      counts_(plan.workers.size()),
      hits_(plan.workers.size()) {
  for (const PlanWorker& worker : plan.workers) own_.push_back(worker.id == own_worker);
  for (const DispatchConfig& config : plan.configs) {
    if (config.phase != phase) continue;
    const RowBytes bytes = RowBytesOf(config.format(), plan.shape.hidden);
    for (std::size_t w = 0; w < plan.workers.size(); ++w) {
      if (plan.workers[w].device != config.edge.worker) continue;
      row_bytes_[{config.layer.value, static_cast<std::int32_t>(w)}] =
          static_cast<std::uint64_t>(bytes.total());
    }
  }
  for (const LayerPlacement& layer : plan.layers) {
    for (const PhysicalExpert& expert : layer.experts) {
      home_[{layer.layer.value, expert.expert.value}] =
          static_cast<std::size_t>(expert.worker.value);
    }
  }
}

void RoutingTally::Count(const MoeCall& call) {
  for (std::size_t t = 0; t < call.tokens; ++t) {
    std::set<std::size_t> visited;
    for (std::size_t k = 0; k < call.top_k; ++k) {
      const std::int32_t expert = call.ids[t * call.top_k + k];
      if (expert < 0) continue;
      const Key key{call.layer.value, expert};
      const std::size_t worker = home_.at(key);
      ++hits_[worker][key];
      ++counts_[worker].expert_hits;
      // Mode normal sends a token once to each worker, low_latency once to each expert.
      if (mode_ == DispatchMode::kNormal && !visited.insert(worker).second) continue;
      ++counts_[worker].rows;
      // A direct call of the gateway's own experts uses no wire.
      if (own_[worker]) continue;
      const auto out = row_bytes_.find({call.layer.value, static_cast<std::int32_t>(worker)});
      counts_[worker].request_bytes += out == row_bytes_.end() ? bf16_row_bytes_ : out->second;
      counts_[worker].reply_bytes += bf16_row_bytes_;
    }
  }
}

WorkerCounts RoutingTally::Of(std::size_t ordinal) const { return counts_[ordinal]; }

std::vector<std::string> RoutingTally::CompareHits(
    std::size_t ordinal, const std::vector<AttachmentCounters::Hit>& counted) const {
  std::map<Key, std::uint64_t> left = hits_[ordinal];
  std::vector<std::string> differences;
  for (const AttachmentCounters::Hit& hit : counted) {
    const Key key{hit.layer.value, hit.expert.value};
    const std::uint64_t predicted = left[key];
    if (predicted != hit.rows) {
      differences.push_back(absl::StrFormat("layer %d expert %d: counted %d rows, predicted %d",
                                            key.first, key.second, hit.rows, predicted));
    }
    left.erase(key);
  }
  // The remaining entries are experts that the worker did not report at all.
  for (const auto& [key, predicted] : left) {
    differences.push_back(absl::StrFormat("layer %d expert %d: counted no rows, predicted %d",
                                          key.first, key.second, predicted));
  }
  return differences;
}

}  // namespace switchyard::qwen3_moe
