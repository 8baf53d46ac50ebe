#include "ctl/explain.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "core/format/wire_format.h"
#include "core/resolve/what_if.h"
#include "report/plan_summary.h"
#include "report/text_table.h"
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

// Indents a page below the block that it belongs to; empty lines stay empty.
std::string Indented(absl::string_view page) {
  std::string out;
  for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(page, "\n"), '\n')) {
    absl::StrAppend(&out, line.empty() ? "" : "  ", line, "\n");
  }
  return out;
}

bool IsOf(const v1::DispatchTrace& trace, const v1::DispatchConfig& config) {
  return trace.phase() == config.phase() && trace.edge().source() == config.edge().source() &&
         trace.edge().worker() == config.edge().worker();
}

// Whether `trace` shows the decision that led to `config`. The trace is of the deployment as
// currently applied, so it can differ from the plan that serves.
bool Made(const v1::DispatchTrace& trace, const v1::DispatchConfig& proto,
          const DispatchConfig& config) {
  return IsOf(trace, proto) && trace.has_outcome() && trace.mode() == proto.mode() &&
         trace.outcome().wire_format() == Text(WireFormatName(config.format()));
}

// The reasons, followed by the page, which has the details.
std::string WithPage(const std::string& reasons, absl::string_view page) {
  return page.empty() ? reasons : absl::StrCat(reasons, "\n", Indented(page));
}

std::string PageOf(const v1::ExplainLayerResponse& response, const v1::DispatchConfig& proto,
                   const DispatchConfig& config) {
  const auto trace = std::find_if(response.traces().begin(), response.traces().end(),
                                  [&](const auto& one) { return Made(one, proto, config); });
  return trace == response.traces().end() ? "" : trace->page();
}

// The decisions that a new plan would contain and the current plan does not.
std::string ChangesText(const v1::ExplainLayerResponse& response, const Plan& layer) {
  std::string out;
  for (const v1::DispatchTrace& trace : response.traces()) {
    bool made = false;
    for (int i = 0; i < response.configs_size(); ++i) {
      made = made || Made(trace, response.configs(i), layer.configs[static_cast<std::size_t>(i)]);
    }
    if (!made) absl::StrAppend(&out, "\n", Indented(trace.page()));
  }
  if (out.empty()) return "";
  return absl::StrCat("\ndecisions for the deployment as applied now, which do not serve yet: ",
                      response.activity(), "\n", out);
}

// The result of a hypothesis in one line, and the reasons.
std::pair<std::string, std::vector<std::string>> OutcomeOf(const Hypothesis& hypothesis) {
  if (!hypothesis.config) {
    return {"would be refused", {std::string(hypothesis.refusal.message())}};
  }
  const DispatchConfig& config = *hypothesis.config;
  return {absl::StrFormat("would be %s, %s out and %s back", DispatchModeName(config.mode),
                          WireFormatName(config.format()), DispatchDtypeName(config.combine_dtype)),
          config.trail};
}

// Hypotheses with the same phase and outcome. Most kinds of workers share an outcome, and one block
// for each would repeat its reasons.
struct Block {
  Phase phase;
  std::pair<std::string, std::vector<std::string>> outcome;
  std::string page;  // of the first edge
  std::vector<std::string> edges;
};

std::vector<Block> BlocksOf(const std::vector<Hypothesis>& hypotheses) {
  std::vector<Block> blocks;
  for (const Hypothesis& one : hypotheses) {
    const auto outcome = OutcomeOf(one);
    auto block = std::find_if(blocks.begin(), blocks.end(), [&](const Block& other) {
      return other.phase == one.phase && other.outcome == outcome;
    });
    if (block == blocks.end())
      // The page of the first edge stands for all edges of the block: their decisions are equal.
      block = blocks.insert(blocks.end(), {one.phase, outcome, one.page, {}});
    block->edges.push_back(absl::StrCat(one.source, " -> ", one.worker));
  }
  // Stable, so that within a phase the coordinator's order (by source and worker) is kept.
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
            item->page = in.trace().page();
            at.Enum("phase", in.phase(), &item->phase);
            if (in.has_config()) {
              at.Sub("config", true, [&] { Decode(at, in.config(), &item->config.emplace()); });
            } else {
              at.Error("refusal", in.has_refusal(), in.refusal(), &item->refusal);
            }
          });
  return at.Finish(std::move(out));
}

std::string HypothesesText(const std::vector<Hypothesis>& hypotheses, absl::string_view why,
                           std::size_t width) {
  const std::string head =
      absl::StrCat(why, "; this would be the decision ", kFullCapabilitiesText);
  std::string out = absl::StrCat(absl::StrJoin(WrapWords(head, width), "\n"), "\n");
  for (const Block& block : BlocksOf(hypotheses)) {
    const std::string line = absl::StrCat(
        PhaseName(block.phase), ", ", absl::StrJoin(block.edges, ", "), ": ", block.outcome.first);
    absl::StrAppend(&out, "\n", absl::StrJoin(WrapWords(line, width), "\n"), "\n",
                    WithPage(Bullets(block.outcome.second, "  ", width), block.page));
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
                 Text(DispatchModeName(config.mode)), Text(WireFormatName(config.format())),
                 Text(DispatchDtypeName(config.combine_dtype)),
                 Text(QuantSchemeInfoOf(config.scheme).name), MaxTokens(config)});
  }
  return absl::StrCat(Head(layer), "\n", PlacementTable(layer).Print(), "\n", configs.Print());
}

std::string ExplainLayerText(const v1::ExplainLayerResponse& response, const Plan& layer,
                             std::size_t width) {
  std::string out = Head(layer);
  for (int i = 0; i < response.configs_size(); ++i) {
    // Pairs by position: FromProto has decoded the configs in the order of the response.
    const DispatchConfig& config = layer.configs[static_cast<std::size_t>(i)];
    absl::StrAppendFormat(&out, "\n%s, %s: %s, %s out and %s back\n", PhaseName(config.phase),
                          EdgeText(config.edge), DispatchModeName(config.mode),
                          WireFormatName(config.format()), DispatchDtypeName(config.combine_dtype));
    out +=
        WithPage(Bullets(config.trail, "  ", width), PageOf(response, response.configs(i), config));
  }
  absl::StrAppend(&out, "\n", PlacementTable(layer).Print(), ChangesText(response, layer));
  return out;
}

std::string ExplainWithoutPlanText(const v1::ExplainLayerResponse& response) {
  std::string out = absl::StrCat("no plan; ", response.activity(), "\n");
  for (const v1::DispatchTrace& trace : response.traces()) {
    absl::StrAppend(&out, "\n", trace.page());
  }
  return out;
}

v1::ExplainLayerResponse WithoutPages(v1::ExplainLayerResponse response) {
  for (v1::DispatchTrace& trace : *response.mutable_traces()) trace.clear_page();
  for (v1::HypotheticalDispatch& would : *response.mutable_hypothetical()) {
    if (would.has_trace()) would.mutable_trace()->clear_page();
  }
  return response;
}

}  // namespace switchyard::ctl
