#include "model/checkpoint_summary.h"

#include <algorithm>
#include <cerrno>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/experts/expert_names.h"
#include "model/experts/layer_facts.h"
#include "model/io/checkpoint_error.h"
#include "model/quant/config/quant_files.h"

namespace switchyard {
namespace {

// The limit of config_json.h: a larger file would be refused after it was read.
constexpr std::uint64_t kConfigBytesMax = 16U << 20U;

// The parts of a checkpoint that describe a layer.
struct Place {
  const CheckpointTensors& tensors;
  const MoeOutline& outline;
  const QuantConfig& config;
};

absl::StatusOr<MoeOutline> ReadOutline(const CheckpointTensors& tensors) {
  SY_ASSIGN_OR_RETURN(const std::optional<std::string> text,
                      tensors.ReadText("config.json", kConfigBytesMax));
  if (!text.has_value()) {
    return MakeCheckpointIoError(
        {.file = absl::StrCat(tensors.dir(), "/config.json"), .tensor = "", .offset = std::nullopt},
        "open", ENOENT);
  }
  absl::StatusOr<MoeOutline> outline = ParseMoeOutline(*text);
  if (outline.ok()) return outline;
  return WithMetadata(Annotate(outline.status(), absl::StrCat(tensors.dir(), "/config.json")),
                      "dir", tensors.dir());
}

std::string UnequalScales(const LayerInputScales& scales) {
  return absl::StrCat("The input scales of its experts differ (", scales.gate_up_min, " to ",
                      scales.gate_up_max,
                      "), and NVFP4 rows need one scale for all: rows travel as BF16.");
}

absl::Status ReadLayer(const Place& place, const ExpertLayer& wanted, LayerSummary& out) {
  SY_ASSIGN_OR_RETURN(out.modules, FindExpertModules(place.tensors, wanted));
  SY_ASSIGN_OR_RETURN(out.quant, ResolveLayerQuant(place.config, out.modules));
  const LayerExperts experts(place.tensors, out.modules, *out.quant, place.outline.shape);
  // `out` keeps what was read so far: an operator sees the layout of a layer that lacks a tensor.
  SY_RETURN_IF_ERROR(experts.Check());
  SY_ASSIGN_OR_RETURN(const LayerInputScales scales, experts.InputScales());
  // The layout has no input scales.
  if (scales.gate_up_max == 0) return absl::OkStatus();
  out.input_scales = scales;
  if (out.quant->scheme == QuantScheme::kNvfp4 && !scales.InputGlobalScale()) {
    out.warnings.push_back(UnequalScales(scales));
  }
  return absl::OkStatus();
}

LayerSummary Summarize(const Place& place, LayerId layer, LayerRole role) {
  LayerSummary out;
  out.layer = layer;
  out.role = role;
  out.status = ReadLayer(place,
                         {.model_type = place.outline.model_type,
                          .layer = layer.value,
                          .draft = role == LayerRole::kDraft,
                          .experts = place.outline.shape.experts},
                         out);
  return out;
}

// Lists the drafts that the tensors have, and warns where config.json announces another number:
// some checkpoints lack announced drafts, and some families do not announce theirs.
void AddDrafts(const Place& place, CheckpointSummary& out) {
  const std::int32_t first = place.outline.first_draft;
  std::int32_t found = 0;
  for (std::int32_t draft = 0;; ++draft) {
    LayerSummary layer = Summarize(place, LayerId{first + draft}, LayerRole::kDraft);
    // No names were found: the layer before was the last draft.
    if (layer.modules.container.empty()) break;
    out.layers.push_back(std::move(layer));
    ++found;
  }
  if (found == place.outline.drafts) return;
  out.warnings.push_back(absl::StrCat("Draft layers: config.json announces ", place.outline.drafts,
                                      ", the checkpoint has the experts of ", found, "."));
}

// Adds up the tensors; those under a layer's container are its experts'.
void AddTotals(const CheckpointTensors& tensors, CheckpointSummary& out) {
  std::map<std::string, LayerSummary*> containers;
  for (LayerSummary& layer : out.layers) {
    if (!layer.modules.container.empty()) {
      containers[absl::StrCat(layer.modules.container, ".")] = &layer;
    }
  }
  std::map<TensorDtype, DtypeTotal> totals;
  for (const std::string& name : tensors.names()) {
    const TensorInfo& tensor = *tensors.Find(name);
    DtypeTotal& total = totals[tensor.dtype];
    total.dtype = tensor.dtype;
    ++total.tensors;
    total.bytes += tensor.bytes;
    // The container that could be a prefix of `name` is the last one that is not above it.
    auto after = containers.upper_bound(name);
    if (after == containers.begin()) continue;
    const auto& [container, layer] = *--after;
    if (!absl::StartsWith(name, container)) continue;
    total.expert_bytes += tensor.bytes;
    layer->expert_bytes += tensor.bytes;
  }
  for (const auto& [dtype, total] : totals) out.totals.push_back(total);
}

}  // namespace

absl::StatusOr<CheckpointSummary> SummarizeCheckpoint(const std::string& dir) {
  SY_ASSIGN_OR_RETURN(const CheckpointTensors tensors, CheckpointTensors::Open(dir));
  CheckpointSummary out;
  out.dir = dir;
  SY_ASSIGN_OR_RETURN(out.outline, ReadOutline(tensors));
  SY_ASSIGN_OR_RETURN(const QuantConfig config, LoadQuantConfig(tensors));
  out.quant_family = config.family;
  out.dispatch = config.dispatch;
  out.warnings = tensors.warnings();
  out.warnings.insert(out.warnings.end(), config.warnings.begin(), config.warnings.end());
  const Place place{tensors, out.outline, config};
  for (const LayerId layer : out.outline.moe_layers) {
    out.layers.push_back(Summarize(place, layer, LayerRole::kBase));
  }
  AddDrafts(place, out);
  AddTotals(tensors, out);
  return out;
}

absl::StatusOr<LayerFacts> FactsOf(const CheckpointSummary& summary, const LayerSummary& layer) {
  return ResolverFactsOf({.layer = layer.layer,
                          .role = layer.role,
                          .quantized_checkpoint = summary.quant_family != "none",
                          .quant = *layer.quant,
                          .keys = summary.dispatch,
                          .input_scales = layer.input_scales});
}

}  // namespace switchyard
