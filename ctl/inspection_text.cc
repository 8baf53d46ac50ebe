#include "ctl/inspection_text.h"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include "core/resolve/what_if.h"
#include "ctl/describe.h"
#include "report/plan_summary.h"
#include "report/text_table.h"

namespace switchyard::ctl {
namespace {

// An empty cell instead of "no limit", which BytesText prints for 0.
std::string SizeText(std::uint64_t bytes) { return bytes == 0 ? "" : BytesText(bytes); }

// "layer 3", "layers 3-60", "draft 61"
// Drafts are numbered separately in some checkpoints, so the word before the number matters.
std::string WhoText(LayerRole role, const std::vector<std::int32_t>& layers) {
  const char* what = role == LayerRole::kDraft ? "draft "
                     : layers.size() == 1      ? "layer "
                                               : "layers ";
  return absl::StrCat(what, Ranges(layers));
}

std::string RoleText(LayerRole role) { return role == LayerRole::kDraft ? "draft" : "base"; }

// The layout of gate and up, then that of down if it differs.
std::string LayoutText(const LayerSummary& layer) {
  const std::string gate = QuantLayoutInfoOf(layer.quant->of(Projection::kGate).layout).name;
  const std::string down = QuantLayoutInfoOf(layer.quant->of(Projection::kDown).layout).name;
  const std::string packed = layer.modules.packed ? ", packed" : "";
  return absl::StrCat(gate, gate == down ? "" : absl::StrCat(", down ", down), packed);
}

std::string RangeText(float least, float most) {
  return least == most ? absl::StrCat(least) : absl::StrCat(least, "..", most);
}

// "58 of 61 layers with experts, 1 draft"
std::string CountsText(const CheckpointSummary& summary) {
  const auto drafts =
      std::count_if(summary.layers.begin(), summary.layers.end(),
                    [](const LayerSummary& layer) { return layer.role == LayerRole::kDraft; });
  std::string out = absl::StrCat(summary.outline.moe_layers.size(), " of ", summary.outline.layers,
                                 " layers with experts");
  if (drafts > 0) absl::StrAppend(&out, ", ", drafts, drafts == 1 ? " draft" : " drafts");
  return out;
}

std::string Head(const CheckpointSummary& summary) {
  const MoeShape& shape = summary.outline.shape;
  const std::string top_k = shape.top_k == 0 ? "" : absl::StrCat(", top-", shape.top_k);
  return absl::StrFormat(
      "checkpoint    %s\nmodel         %s, %s\nexperts       %d per layer, hidden %d, intermediate "
      "%d%s\nquantization  %s\n",
      summary.dir, summary.outline.model_type, CountsText(summary), shape.experts, shape.hidden,
      shape.intermediate, top_k, summary.quant_family);
}

std::string LayersText(const Inspection& inspection, std::size_t width) {
  TextTable table({"LAYERS", "ROLE", "SCHEME", "LAYER BYTES", "INPUT SCALES", "LAYOUT"});
  std::vector<std::string> why;
  for (const LayerGroup& group : inspection.layers) {
    const LayerSummary& layer = group.first;
    std::string scales;
    if (layer.input_scales) {
      scales = RangeText(layer.input_scales->gate_up_min, layer.input_scales->gate_up_max);
    }
    table.Add({Ranges(group.layers), RoleText(layer.role),
               // Layers without a known scheme still get a row, with "?".
               layer.quant ? QuantSchemeInfoOf(layer.quant->scheme).name : "?",
               SizeText(layer.expert_bytes), scales, layer.quant ? LayoutText(layer) : "?"});
    if (!layer.quant) continue;
    why.push_back(absl::StrCat(WhoText(layer.role, group.layers), ": ", layer.quant->why));
  }
  const std::string reasons =
      why.empty() ? "" : absl::StrCat("\nreasons for the schemes\n", Bullets(why, "  ", width));
  return absl::StrCat(table.Print("", width), reasons);
}

std::string TensorsText(const CheckpointSummary& summary) {
  TextTable table({"DTYPE", "TENSORS", "BYTES", "OF EXPERTS"});
  DtypeTotal all;
  for (const DtypeTotal& total : summary.totals) {
    table.Add({std::string(TensorDtypeName(total.dtype)), absl::StrCat(total.tensors),
               SizeText(total.bytes), SizeText(total.expert_bytes)});
    all.tensors += total.tensors;
    all.bytes += total.bytes;
    all.expert_bytes += total.expert_bytes;
  }
  table.Add({"all", absl::StrCat(all.tensors), SizeText(all.bytes), SizeText(all.expert_bytes)});
  return table.Print();
}

// Errors of layers, then warnings of layers, then warnings of the whole checkpoint.
std::string RemarksText(const Inspection& inspection, std::size_t width) {
  std::vector<std::string> errors;
  std::vector<std::string> warnings;
  for (const LayerGroup& group : inspection.layers) {
    const std::string who = absl::StrCat(WhoText(group.first.role, group.layers), ": ");
    const std::string first = group.layers.size() == 1 ? "" : "all like the first: ";
    if (!group.first.status.ok()) {
      errors.push_back(absl::StrCat(who, first, group.first.status.message()));
    }
    for (const std::string& warning : group.first.warnings) {
      warnings.push_back(absl::StrCat(who, first, warning));
    }
  }
  warnings.insert(warnings.end(), inspection.summary.warnings.begin(),
                  inspection.summary.warnings.end());
  std::string out;
  if (!errors.empty()) absl::StrAppend(&out, "\nerrors\n", Bullets(errors, "  ", width));
  if (!warnings.empty()) absl::StrAppend(&out, "\nwarnings\n", Bullets(warnings, "  ", width));
  return out;
}

// The text of a refusal without its head ("layer 3 of ..., cpu -> ascend: "), which the table
// already shows.
std::string RefusalText(const DecisionTrace& trace) {
  const std::string text(trace.refusal.message());
  const std::size_t head = text.find(": ");
  return head == std::string::npos ? text : text.substr(head + 2);
}

std::string WhyText(const DecisionTrace& trace) {
  if (!trace.outcome) return RefusalText(trace);
  const RuleOutcome& winner = trace.decision->rules[trace.decision->winner];
  std::string out =
      absl::StrFormat("rule %s (%s): %s", winner.step, RuleName(winner.rule), winner.why);
  for (const Adjustment& adjustment : trace.adjustments) {
    absl::StrAppendFormat(&out, "; %s, not %s: %s", DispatchDtypeName(adjustment.to),
                          DispatchDtypeName(adjustment.from), adjustment.why);
  }
  return out;
}

std::vector<std::string> Cells(const WouldTravel& would) {
  const DecisionTrace& trace = would.trace;
  return {std::string(DispatchModeName(trace.mode)),
          trace.outcome ? std::string(WireFormatName(trace.outcome->format)) : "refused",
          trace.outcome ? absl::StrCat(trace.outcome->wire.total()) : "", WhyText(trace)};
}

// One row for both phases if they only differ in their mode.
std::string WouldText(const TravelGroup& group, std::size_t width) {
  TextTable table({"WORKER", "PHASE", "WIRE", "ROW BYTES", "WHY"});
  // `would` has prefill and decode of one profile next to each other.
  for (std::size_t i = 0; i + 1 < group.would.size(); i += 2) {
    const std::string worker = group.would[i].profile->name;
    const std::vector<std::string> prefill = Cells(group.would[i]);
    const std::vector<std::string> decode = Cells(group.would[i + 1]);
    // The mode differs always: it follows from the phase.
    if (std::equal(prefill.begin() + 1, prefill.end(), decode.begin() + 1)) {
      table.Add({worker, "both", prefill[1], prefill[2], prefill[3]});
      continue;
    }
    table.Add({worker, "prefill", prefill[1], prefill[2], prefill[3]});
    table.Add({worker, "decode", decode[1], decode[2], decode[3]});
  }
  return table.Print("  ", width);
}

std::string TravelHead(const TravelGroup& group, std::size_t width) {
  const LayerRole role = group.facts.role;
  const QuantSchemeInfo& scheme = QuantSchemeInfoOf(*group.facts.scheme);
  const bool scaled = group.facts.quant_config && group.facts.quant_config->input_global_scale;
  const std::string line =
      absl::StrFormat("%s: %s (%s)%s", WhoText(role, group.layers), scheme.name, scheme.description,
                      scaled ? "; all experts of a layer share an input scale" : "");
  return absl::StrCat(absl::StrJoin(WrapWords(line, width), "\n"), "\n");
}

// A set, because most profiles give the same warnings.
std::vector<std::string> TravelWarnings(const std::vector<TravelGroup>& groups) {
  std::set<std::string> warnings;
  for (const TravelGroup& group : groups) {
    for (const WouldTravel& would : group.would) {
      for (const Warning& warning : would.trace.warnings) warnings.insert(warning.text);
      // This limit depends on the number of workers, which an inspection does not know, so it is a
      // note and not a decision.
      const std::int32_t most = would.profile->quantized_normal_ranks_max;
      if (most > 0 && would.phase == Phase::kPrefill && would.trace.outcome &&
          would.trace.outcome->dtype() != DispatchDtype::kBf16) {
        warnings.insert(absl::StrCat(would.profile->title, " sends bf16 in normal mode beyond ",
                                     most, " workers"));
      }
    }
  }
  return {warnings.begin(), warnings.end()};
}

std::string TravelText(const Inspection& inspection, std::size_t width) {
  std::string out = "\nhow rows would travel: prefill in mode normal, decode in low_latency\n";
  for (const std::string& line : WrapWords(absl::StrCat("(", kFullCapabilitiesText, ")"), width)) {
    absl::StrAppend(&out, line, "\n");
  }
  for (const TravelGroup& group : inspection.travel) {
    absl::StrAppend(&out, "\n", TravelHead(group, width), WouldText(group, width));
  }
  const std::vector<std::string> warnings = TravelWarnings(inspection.travel);
  if (!warnings.empty()) absl::StrAppend(&out, "\nnotes\n", Bullets(warnings, "  ", width));
  return out;
}

Json LayerJson(const LayerGroup& group) {
  const LayerSummary& layer = group.first;
  Json json{{"layers", group.layers}, {"role", RoleText(layer.role)}};
  if (layer.quant) {
    json["scheme"] = QuantSchemeInfoOf(layer.quant->scheme).name;
    for (const Projection projection : kAllProjections) {
      json["layout"][std::string(ProjectionName(projection))] =
          QuantLayoutInfoOf(layer.quant->of(projection).layout).name;
    }
    json["why"] = layer.quant->why;
  }
  json["packed"] = layer.modules.packed;
  json["expert_bytes_each"] = layer.expert_bytes;
  if (layer.input_scales) {
    const LayerInputScales& scales = *layer.input_scales;
    json["input_scales"] = {{"gate_up", {scales.gate_up_min, scales.gate_up_max}},
                            {"down", {scales.down_min, scales.down_max}}};
  }
  json["warnings"] = layer.warnings;
  if (!layer.status.ok()) json["error"] = ToJson(layer.status);
  return json;
}

Json WouldJson(const WouldTravel& would) {
  const DecisionTrace& trace = would.trace;
  Json json{{"worker", would.profile->name},
            {"phase", std::string(PhaseName(would.phase))},
            {"mode", std::string(DispatchModeName(trace.mode))}};
  if (trace.outcome) {
    json["dtype"] = std::string(DispatchDtypeName(trace.outcome->dtype()));
    json["wire_format"] = std::string(WireFormatName(trace.outcome->format));
    json["row_bytes"] = trace.outcome->wire.total();
  } else {
    json["refusal"] = ToJson(trace.refusal);
  }
  if (trace.decision) {
    const RuleOutcome& winner = trace.decision->rules[trace.decision->winner];
    json["rule"] = {
        {"step", winner.step}, {"name", std::string(RuleName(winner.rule))}, {"why", winner.why}};
  }
  json["adjustments"] = Json::array();
  for (const Adjustment& adjustment : trace.adjustments) {
    json["adjustments"].push_back({{"name", std::string(AdjustmentName(adjustment.id))},
                                   {"from", std::string(DispatchDtypeName(adjustment.from))},
                                   {"to", std::string(DispatchDtypeName(adjustment.to))},
                                   {"why", adjustment.why}});
  }
  json["warnings"] = Json::array();
  for (const Warning& warning : trace.warnings) json["warnings"].push_back(warning.text);
  return json;
}

Json TravelJson(const Inspection& inspection) {
  Json groups = Json::array();
  for (const TravelGroup& group : inspection.travel) {
    Json would = Json::array();
    for (const WouldTravel& one : group.would) would.push_back(WouldJson(one));
    groups.push_back({{"layers", group.layers},
                      {"role", RoleText(group.facts.role)},
                      {"scheme", QuantSchemeInfoOf(*group.facts.scheme).name},
                      {"would", std::move(would)}});
  }
  return {{"assumes", kFullCapabilitiesText}, {"groups", std::move(groups)}};
}

}  // namespace

std::string InspectionText(const Inspection& inspection, std::size_t width) {
  return absl::StrCat(Head(inspection.summary), "\n", LayersText(inspection, width), "\n",
                      TensorsText(inspection.summary), RemarksText(inspection, width),
                      TravelText(inspection, width));
}

Json InspectionJson(const Inspection& inspection) {
  const CheckpointSummary& summary = inspection.summary;
  const MoeShape& shape = summary.outline.shape;
  Json json{{"checkpoint", summary.dir},
            {"model_type", summary.outline.model_type},
            {"quantization", summary.quant_family},
            {"shape",
             {{"hidden", shape.hidden},
              {"intermediate", shape.intermediate},
              {"experts", shape.experts},
              {"top_k", shape.top_k}}},
            {"layers", Json::array()},
            {"tensors", Json::array()},
            {"warnings", summary.warnings}};
  for (const LayerGroup& group : inspection.layers) json["layers"].push_back(LayerJson(group));
  for (const DtypeTotal& total : summary.totals) {
    json["tensors"].push_back({{"dtype", std::string(TensorDtypeName(total.dtype))},
                               {"tensors", total.tensors},
                               {"bytes", total.bytes},
                               {"expert_bytes", total.expert_bytes}});
  }
  json["dispatch"] = TravelJson(inspection);
  return json;
}

}  // namespace switchyard::ctl
