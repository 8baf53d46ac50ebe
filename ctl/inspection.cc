#include "ctl/inspection.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/mode_limits.h"
#include "core/resolve/what_if.h"
#include "report/plan_summary.h"

namespace switchyard::ctl {
namespace {

constexpr Phase kPhases[] = {Phase::kPrefill, Phase::kDecode};

// A layer's error without the layer's number in tensor names, so that layers with the same problem
// compare equal.
std::string Complaint(const LayerSummary& layer) {
  const std::string number = absl::StrCat(".", layer.layer.value, ".");
  return absl::StrReplaceAll(layer.status.ToString(), {{number, ".N."}});
}

// Whether two layers can share a row of the report.
bool Alike(const LayerSummary& a, const LayerSummary& b) {
  if (a.role != b.role || a.quant.has_value() != b.quant.has_value()) return false;
  if (a.quant && (a.quant->projections != b.quant->projections || a.quant->why != b.quant->why)) {
    return false;
  }
  return a.modules.packed == b.modules.packed && a.expert_bytes == b.expert_bytes &&
         a.input_scales.has_value() == b.input_scales.has_value() &&
         a.warnings.empty() == b.warnings.empty() && Complaint(a) == Complaint(b);
}

void Widen(LayerInputScales& scales, const LayerInputScales& by) {
  scales.gate_up_min = std::min(scales.gate_up_min, by.gate_up_min);
  scales.gate_up_max = std::max(scales.gate_up_max, by.gate_up_max);
  scales.down_min = std::min(scales.down_min, by.down_min);
  scales.down_max = std::max(scales.down_max, by.down_max);
}

void AddToGroups(const LayerSummary& layer, std::vector<LayerGroup>& groups) {
  const auto group = std::find_if(groups.begin(), groups.end(), [&](const LayerGroup& other) {
    return Alike(other.first, layer);
  });
  if (group == groups.end()) {
    groups.push_back({{layer.layer.value}, layer});
    return;
  }
  group->layers.push_back(layer.layer.value);
  if (layer.input_scales) Widen(*group->first.input_scales, *layer.input_scales);
}

// The resolver only checks whether a global scale exists, so its value must not split a group.
bool SameToTheResolver(const LayerFacts& a, const LayerFacts& b) {
  if (a.scheme != b.scheme || a.excluded != b.excluded || a.role != b.role ||
      a.power_of_two_scales != b.power_of_two_scales) {
    return false;
  }
  if (!a.quant_config || !b.quant_config) return !a.quant_config && !b.quant_config;
  LayerQuantConfig other = *b.quant_config;
  if (a.quant_config->input_global_scale && other.input_global_scale) {
    other.input_global_scale = a.quant_config->input_global_scale;
  }
  return *a.quant_config == other;
}

void AddToGroups(const LayerFacts& facts, std::vector<TravelGroup>& groups) {
  auto group = std::find_if(groups.begin(), groups.end(), [&](const TravelGroup& other) {
    return SameToTheResolver(other.facts, facts);
  });
  if (group == groups.end()) {
    groups.push_back({});
    group = groups.end() - 1;
    group->facts = facts;
  }
  group->layers.push_back(facts.layer.value);
  if (!facts.quant_config || !facts.quant_config->input_global_scale) return;
  const float scale = *facts.quant_config->input_global_scale;
  if (!group->global_scales) group->global_scales.emplace(scale, scale);
  group->global_scales->first = std::min(group->global_scales->first, scale);
  group->global_scales->second = std::max(group->global_scales->second, scale);
}

// The trace mentions the first layer's scale. Replaces it by the range of the whole group.
void NameAllScales(const TravelGroup& group, DecisionTrace& trace) {
  if (!group.global_scales || group.global_scales->first == group.global_scales->second) return;
  if (!trace.decision) return;
  const std::string first =
      absl::StrCat("input_global_scale ", *group.facts.quant_config->input_global_scale);
  const std::string all = absl::StrCat("input_global_scale ", group.global_scales->first, "..",
                                       group.global_scales->second);
  for (RuleOutcome& rule : trace.decision->rules) {
    rule.why = absl::StrReplaceAll(rule.why, {{first, all}});
  }
}

void Resolve(const CheckpointSummary& summary, const std::vector<const DeviceProfile*>& profiles,
             TravelGroup& group) {
  DispatchRequest request;
  request.model = summary.outline.model_type;
  request.layer = group.facts;
  // A source that can encode every dtype, so that only the workers limit the decision.
  request.source = FullCapabilities(*FindDeviceProfile("cpu"));
  request.shape = summary.outline.shape;
  for (const DeviceProfile* profile : profiles) {
    const std::vector<CapabilitySet> workers{FullCapabilities(*profile)};
    request.workers = workers;
    for (const Phase phase : kPhases) {
      request.phase = phase;
      group.would.push_back({profile, phase, TraceWithinLimits(request, workers)});
      NameAllScales(group, group.would.back().trace);
    }
  }
}

absl::Status NoSuchLayer(const CheckpointSummary& summary, std::int32_t layer) {
  std::vector<std::int32_t> known;
  for (const LayerSummary& one : summary.layers) known.push_back(one.layer.value);
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownLayer,
                   absl::StrCat("layer ", layer, " has no experts; these have: ", Ranges(known)),
                   {{"layer", absl::StrCat(layer)}});
}

absl::StatusOr<Inspection> InspectIt(const InspectOptions& options) {
  Inspection out;
  SY_ASSIGN_OR_RETURN(const std::vector<const DeviceProfile*> profiles,
                      ProfilesNamed(options.worker_kind));
  SY_ASSIGN_OR_RETURN(out.summary, SummarizeCheckpoint(options.path));
  for (const LayerSummary& layer : out.summary.layers) {
    if (options.layer && layer.layer.value != *options.layer) continue;
    AddToGroups(layer, out.layers);
    if (!layer.status.ok()) ++out.broken;
    // Without a scheme there is nothing to decide.
    if (!layer.quant) continue;
    SY_ASSIGN_OR_RETURN(const LayerFacts facts, FactsOf(out.summary, layer));
    AddToGroups(facts, out.travel);
  }
  if (out.layers.empty()) return NoSuchLayer(out.summary, options.layer.value_or(0));
  for (TravelGroup& group : out.travel) Resolve(out.summary, profiles, group);
  return out;
}

}  // namespace

absl::StatusOr<Inspection> Inspect(const InspectOptions& options) {
  // Errors of any step get the checkpoint's path here, in one place.
  absl::StatusOr<Inspection> inspection = InspectIt(options);
  if (inspection.ok()) return inspection;
  return WithMetadata(inspection.status(), "checkpoint", options.path);
}

absl::Status CheckServable(const Inspection& inspection) {
  if (inspection.broken == 0) return absl::OkStatus();
  // The first broken layer in the order of the report.
  const auto first = std::find_if(inspection.layers.begin(), inspection.layers.end(),
                                  [](const LayerGroup& group) { return !group.first.status.ok(); });
  const auto layer = absl::StrCat(first->layers.front());
  const std::string draft = first->first.role == LayerRole::kDraft ? "draft " : "";
  const std::string more = inspection.broken == 1
                               ? ""
                               : absl::StrCat(" (nor those of ", inspection.broken - 1, " more)");
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kCheckpoint,
                   absl::StrCat("the experts of ", draft, "layer ", layer, " cannot be served",
                                more, ": ", first->first.status.message()),
                   {{"checkpoint", inspection.summary.dir}, {"layer", layer}});
}

}  // namespace switchyard::ctl
