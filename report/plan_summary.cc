#include "report/plan_summary.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace switchyard {
namespace {

// Compares two configs except for their layer.
bool AlikeButForLayer(const DispatchConfig& a, DispatchConfig b) {
  b.layer = a.layer;
  return a == b;
}

}  // namespace

std::string Ranges(std::vector<std::int32_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    parts.push_back(last == i ? absl::StrCat(numbers[i])
                              : absl::StrCat(numbers[i], "-", numbers[last]));
    i = last + 1;
  }
  return absl::StrJoin(parts, " ");
}

std::vector<PlacementRow> SummarizePlacement(const Plan& plan) {
  std::vector<PlacementRow> rows;
  for (std::size_t w = 0; w < plan.workers.size(); ++w) {
    const WorkerOrdinal worker{static_cast<std::int32_t>(w)};
    // Pairs of experts and the layers in which the worker hosts exactly these, by first layer. A
    // vector, because a map would sort them by experts.
    std::vector<std::pair<std::vector<std::int32_t>, std::vector<std::int32_t>>> groups;
    for (const LayerPlacement& layer : plan.layers) {
      std::vector<std::int32_t> experts;
      for (const PhysicalExpert& expert : layer.experts) {
        if (expert.worker == worker) experts.push_back(expert.expert.value);
      }
      if (experts.empty()) continue;
      std::sort(experts.begin(), experts.end());
      auto group = std::find_if(groups.begin(), groups.end(),
                                [&](const auto& item) { return item.first == experts; });
      if (group == groups.end()) {
        groups.emplace_back(std::move(experts), std::vector<std::int32_t>{});
        group = std::prev(groups.end());
      }
      group->second.push_back(layer.layer.value);
    }
    // A worker without experts is listed too: it may be new or left out.
    if (groups.empty()) rows.push_back({worker, "", "", 0});
    for (const auto& [experts, layers] : groups) {
      rows.push_back(
          {worker, Ranges(layers), Ranges(experts), static_cast<std::int32_t>(experts.size())});
    }
  }
  return rows;
}

std::vector<ConfigRow> SummarizeConfigs(std::span<const DispatchConfig> configs) {
  struct Group {
    const DispatchConfig* first;
    std::vector<std::int32_t> layers;
  };
  // A map keeps phases and edges in order; layers within a group stay in the plan's order.
  std::map<std::tuple<Phase, Edge>, std::vector<Group>> by_kind;
  for (const DispatchConfig& config : configs) {
    std::vector<Group>& groups = by_kind[{config.phase, config.edge}];
    auto group = std::find_if(groups.begin(), groups.end(), [&](const Group& item) {
      return AlikeButForLayer(*item.first, config);
    });
    if (group == groups.end()) group = groups.insert(groups.end(), {&config, {}});
    group->layers.push_back(config.layer.value);
  }
  std::vector<ConfigRow> rows;
  for (const auto& [kind, groups] : by_kind) {
    for (const Group& group : groups) rows.push_back({Ranges(group.layers), *group.first});
  }
  return rows;
}

std::string EdgeText(const Edge& edge) {
  return absl::StrCat(DeviceKindName(edge.source), " -> ", DeviceKindName(edge.worker));
}

}  // namespace switchyard
