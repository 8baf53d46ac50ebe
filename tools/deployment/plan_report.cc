#include "tools/deployment/plan_report.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "report/plan_summary.h"
#include "report/text_table.h"

namespace switchyard::qwen3_moe {
namespace {

constexpr std::size_t kWidth = 100;  // of the report, in characters

TextTable PlacementTable(const Plan& plan) {
  TextTable table({"worker", "kernel", "layers", "experts"});
  for (const PlacementRow& row : SummarizePlacement(plan)) {
    const PlanWorker& worker = plan.workers[static_cast<std::size_t>(row.worker.value)];
    table.Add({worker.id, worker.kernel_family, row.layers, row.experts});
  }
  return table;
}

// The reasons in the plan, preceded by the reason for a session mode that differs from it.
std::vector<std::string> Because(const DispatchConfig& config, DispatchMode mode) {
  std::vector<std::string> reasons = config.trail;
  if (mode != config.mode) {
    reasons.insert(reasons.begin(), absl::StrCat("mode ", DispatchModeName(mode),
                                                 ": requested by the session; the plan has ",
                                                 DispatchModeName(config.mode)));
  }
  return reasons;
}

void AppendConfigs(const SessionGrant& grant, std::string* out) {
  for (const ConfigRow& row : SummarizeConfigs(grant.plan.configs)) {
    if (row.config.phase != grant.request.phase) continue;
    // A session in another mode than the plan's still uses the plan's config.
    const DispatchMode mode = grant.request.mode.value_or(row.config.mode);
    absl::StrAppendFormat(out, "  layers %s, %s, %s: %s, %s\n", row.layers,
                          PhaseName(row.config.phase), EdgeText(row.config.edge),
                          DispatchModeName(mode), DispatchDtypeName(row.config.wire_dtype));
    *out += Bullets(Because(row.config, mode), "    ", kWidth);
  }
}

}  // namespace

std::string DescribePlan(const SessionGrant& prefill, const SessionGrant& decode) {
  std::string out =
      absl::StrFormat("placement of %s, epoch %d\n%s", decode.plan.model, decode.plan.epoch.value,
                      PlacementTable(decode.plan).Print("  "));
  out += "dispatch configs and why\n";
  AppendConfigs(prefill, &out);
  AppendConfigs(decode, &out);
  return out;
}

}  // namespace switchyard::qwen3_moe
