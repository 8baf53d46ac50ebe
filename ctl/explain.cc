#include "ctl/explain.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "client/plan_summary.h"
#include "client/text_table.h"
#include "core/resolve/what_if.h"
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

// Its lines: what would come out, and why.
std::pair<std::string, std::vector<std::string>> OutcomeOf(const Hypothesis& hypothesis) {
  if (!hypothesis.config) {
    return {"would be refused", {std::string(hypothesis.refusal.message())}};
  }
  const DispatchConfig& config = *hypothesis.config;
  return {absl::StrFormat("would be %s, %s out and %s back", DispatchModeName(config.mode),
                          DispatchDtypeName(config.wire_dtype),
                          DispatchDtypeName(config.combine_dtype)),
          config.trail};
}

// Those with one phase and one outcome.
struct Block {
  Phase phase;
  std::pair<std::string, std::vector<std::string>> outcome;
  std::vector<std::string> edges;
};

std::vector<Block> BlocksOf(const std::vector<Hypothesis>& hypotheses) {
  std::vector<Block> blocks;
  for (const Hypothesis& one : hypotheses) {
    const auto outcome = OutcomeOf(one);
    auto block = std::find_if(blocks.begin(), blocks.end(), [&](const Block& other) {
      return other.phase == one.phase && other.outcome == outcome;
    });
    if (block == blocks.end()) block = blocks.insert(blocks.end(), {one.phase, outcome, {}});
    block->edges.push_back(absl::StrCat(one.source, " -> ", one.worker));
  }
  std::stable_sort(blocks.begin(), blocks.end(),
                   [](const Block& a, const Block& b) { return a.phase < b.phase; });
  return blocks;
}

}  // namespace

absl::StatusOr<std::vector<Hypothesis>> HypothesesFromProto(const v1::ExplainLayerResponse& proto) {
  Decoder at("ExplainLayerResponse");
  std::vector<Hypothesis> out;
  at.Each("hypothetical", proto.hypothetical(), &out,
          [&at](const v1::HypotheticalDispatch& in, Hypothesis* item) {
            item->source = in.source_profile();
            item->worker = in.worker_profile();
            at.Enum("phase", in.phase(), &item->phase);
            if (in.has_config()) {
              at.Sub("config", true, [&] { Decode(at, in.config(), &item->config.emplace()); });
            } else {
              at.Error("refusal", in.has_refusal(), in.refusal(), &item->refusal);
            }
          });
  return at.Finish(std::move(out));
}

std::string HypothesesText(const std::vector<Hypothesis>& hypotheses, absl::string_view asked,
                           std::size_t width) {
  const std::string head = absl::StrCat("the plan has no edge ", asked,
                                        "; this is what would be decided ", kFullCapabilitiesText);
  std::string out = absl::StrCat(absl::StrJoin(WrapWords(head, width), "\n"), "\n");
  for (const Block& block : BlocksOf(hypotheses)) {
    const std::string line = absl::StrCat(
        PhaseName(block.phase), ", ", absl::StrJoin(block.edges, ", "), ": ", block.outcome.first);
    absl::StrAppend(&out, "\n", absl::StrJoin(WrapWords(line, width), "\n"), "\n",
                    Bullets(block.outcome.second, "  ", width));
  }
  return out;
}

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
