#include "examples/qwen3_moe/plan_report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace switchyard::qwen3_moe {
namespace {

// "0-3 8" for 0 1 2 3 8.
std::string Ranges(const std::vector<std::int32_t>& ascending) {
  std::vector<std::string> parts;
  for (std::size_t i = 0; i < ascending.size();) {
    std::size_t last = i;
    while (last + 1 < ascending.size() && ascending[last + 1] == ascending[last] + 1) ++last;
    parts.push_back(last == i ? absl::StrCat(ascending[i])
                              : absl::StrCat(ascending[i], "-", ascending[last]));
    i = last + 1;
  }
  return absl::StrJoin(parts, " ");
}

void AppendPlacement(const Plan& plan, std::string* out) {
  absl::StrAppendFormat(out, "placement of %s, epoch %d\n", plan.model, plan.epoch.value);
  absl::StrAppendFormat(out, "  %-6s %-10s %-14s %s\n", "layer", "worker", "kernel", "experts");
  for (const LayerPlacement& layer : plan.layers) {
    for (std::size_t w = 0; w < plan.workers.size(); ++w) {
      std::vector<std::int32_t> experts;
      for (const PhysicalExpert& expert : layer.experts) {
        if (expert.worker.value == static_cast<std::int32_t>(w)) {
          experts.push_back(expert.expert.value);
        }
      }
      absl::StrAppendFormat(out, "  %-6d %-10s %-14s %s\n", layer.layer.value, plan.workers[w].id,
                            plan.workers[w].kernel_family, Ranges(experts));
    }
  }
}

void AppendConfigs(const SessionGrant& grant, std::string* out) {
  for (const DispatchConfig& config : grant.plan.configs) {
    if (config.phase != grant.order.phase) continue;
    const DispatchMode mode = grant.order.mode.value_or(config.mode);
    absl::StrAppendFormat(out, "  %-6d %-8s %-12s %-6s %s\n", config.layer.value,
                          PhaseName(config.phase), DispatchModeName(mode),
                          DispatchDtypeName(config.wire_dtype), absl::StrJoin(config.trail, "; "));
  }
}

}  // namespace

std::string DescribePlan(const SessionGrant& prefill, const SessionGrant& decode) {
  std::string out;
  AppendPlacement(decode.plan, &out);
  out += "dispatch configs\n";
  absl::StrAppendFormat(&out, "  %-6s %-8s %-12s %-6s %s\n", "layer", "phase", "mode", "dtype",
                        "because");
  AppendConfigs(prefill, &out);
  AppendConfigs(decode, &out);
  return out;
}

}  // namespace switchyard::qwen3_moe
