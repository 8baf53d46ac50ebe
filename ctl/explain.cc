#include "ctl/explain.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "client/plan_summary.h"
#include "client/text_table.h"
#include "services/convert/plan.h"

namespace switchyard::ctl {
namespace {

std::string Text(absl::string_view view) { return std::string(view); }

std::string Head(const Plan& plan) {
  return absl::StrFormat("layer %d, epoch %d\n", plan.layers.front().layer.value, plan.epoch.value);
}

TextTable PlacementTable(const Plan& plan) {
  TextTable table({"WORKER", "DEVICE", "KERNEL", "COPIES", "EXPERTS"});
  for (const PlacementRow& row : SummarizePlacement(plan)) {
    const PlanWorker& worker = plan.workers[static_cast<std::size_t>(row.worker.value)];
    table.Add({worker.id, Text(DeviceKindName(worker.device)), worker.kernel_family,
               absl::StrCat(row.per_layer), row.experts});
  }
  return table;
}

std::string MaxTokens(const DispatchConfig& config) {
  return config.max_tokens_per_step == 0 ? "" : absl::StrCat(config.max_tokens_per_step);
}

}  // namespace

absl::StatusOr<Plan> FromProto(const v1::ExplainLayerResponse& proto) {
  Decoder at("ExplainLayerResponse");
  Plan plan;
  plan.epoch = Epoch{proto.epoch()};
  at.Each("workers", proto.workers(), &plan.workers,
          [&at](const v1::PlanWorker& in, PlanWorker* out) { Decode(at, in, out); });
  LayerPlacement layer;
  at.Sub("placement", proto.has_placement(), [&] { Decode(at, proto.placement(), &layer); });
  plan.layers.push_back(std::move(layer));
  at.Each("configs", proto.configs(), &plan.configs,
          [&at](const v1::DispatchConfig& in, DispatchConfig* out) { Decode(at, in, out); });
  return at.Finish(std::move(plan));
}

std::string DescribeLayerText(const Plan& layer) {
  TextTable configs({"PHASE", "EDGE", "MODE", "WIRE", "COMBINE", "SCHEME", "MAX TOKENS"});
  for (const DispatchConfig& config : layer.configs) {
    configs.Add({Text(PhaseName(config.phase)), EdgeText(config.edge),
                 Text(DispatchModeName(config.mode)), Text(DispatchDtypeName(config.wire_dtype)),
                 Text(DispatchDtypeName(config.combine_dtype)),
                 Text(QuantSchemeInfoOf(config.scheme).name), MaxTokens(config)});
  }
  return absl::StrCat(Head(layer), "\n", PlacementTable(layer).Print(), "\n", configs.Print());
}

std::string ExplainLayerText(const Plan& layer, std::size_t width) {
  std::string out = Head(layer);
  for (const DispatchConfig& config : layer.configs) {
    absl::StrAppendFormat(&out, "\n%s, %s: %s, %s out and %s back\n", PhaseName(config.phase),
                          EdgeText(config.edge), DispatchModeName(config.mode),
                          DispatchDtypeName(config.wire_dtype),
                          DispatchDtypeName(config.combine_dtype));
    out += Bullets(config.trail, "  ", width);
  }
  absl::StrAppend(&out, "\n", PlacementTable(layer).Print());
  return out;
}

}  // namespace switchyard::ctl
