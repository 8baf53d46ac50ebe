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

void AppendConfigs(const SessionGrant& grant, std::string* out) {
  for (const ConfigRow& row : SummarizeConfigs(grant.plan.configs)) {
    if (row.config.phase != grant.request.phase) continue;
    const DispatchConfig config = ConfigOfSession(row.config, grant.request);
    absl::StrAppendFormat(out, "  layers %s, %s, %s: %s, %s\n", row.layers, PhaseName(config.phase),
                          EdgeText(config.edge), DispatchModeName(config.mode),
                          DispatchDtypeName(config.wire_dtype));
    *out += Bullets(config.trail, "    ", kWidth);
  }
}

}  // namespace

DispatchConfig ConfigOfSession(DispatchConfig config, const OpenSessionRequest& request) {
  const DispatchMode mode = request.mode.value_or(config.mode);
  if (mode == config.mode) return config;
  config.trail.insert(
      config.trail.begin(),
      absl::StrCat("mode ", DispatchModeName(mode), ": requested by the session; the plan has ",
                   DispatchModeName(config.mode)));
  config.mode = mode;
  return config;
}

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
