#include "model/checkpoint.h"

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/quant/config/quant_files.h"

namespace switchyard {
namespace {

constexpr char kConfigName[] = "config.json";
constexpr std::uint64_t kConfigBytesMax = 16U << 20U;

absl::StatusOr<ModelConfig> ReadConfig(const CheckpointTensors& tensors) {
  const std::string path = absl::StrCat(tensors.dir(), "/", kConfigName);
  SY_ASSIGN_OR_RETURN(const std::optional<std::string> json,
                      tensors.ReadText(kConfigName, kConfigBytesMax));
  if (!json.has_value()) {
    return MakeCheckpointIoError({.file = path, .tensor = "", .offset = std::nullopt}, "open",
                                 ENOENT);
  }
  absl::StatusOr<ModelConfig> config = ParseModelConfig(*json);
  if (!config.ok()) return WithMetadata(Annotate(config.status(), path), "file", path);
  return config;
}

}  // namespace

// Plans number drafts behind the other layers; checkpoints may number them from 0.
ExpertLayer ExpertLayerOf(const ModelConfig& config, LayerId layer) {
  ExpertLayer out{.model_type = config.model_type,
                  .layer = layer.value,
                  .draft = layer.value >= config.layers,
                  .experts = config.experts};
  if (out.draft && DraftsCountApart(config.model_type)) out.layer -= config.layers;
  return out;
}

Checkpoint::Checkpoint(CheckpointTensors tensors, ModelConfig config, QuantConfig quant)
    : CheckpointTensors(std::move(tensors)), config_(std::move(config)), quant_(std::move(quant)) {}

absl::StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& dir,
                                                             const SafetensorsLimits& limits) {
  SY_ASSIGN_OR_RETURN(CheckpointTensors tensors, CheckpointTensors::Open(dir, limits));
  SY_ASSIGN_OR_RETURN(ModelConfig config, ReadConfig(tensors));
  SY_ASSIGN_OR_RETURN(QuantConfig quant, LoadQuantConfig(tensors));
  std::unique_ptr<Checkpoint> checkpoint(
      new Checkpoint(std::move(tensors), std::move(config), std::move(quant)));
  SY_RETURN_IF_ERROR(checkpoint->FindAllExperts());
  return checkpoint;
}

// Draft layers come first: a checkpoint may lack those that its config announces, and then
// draft_layers must shrink before anything counts layers. A missing base layer is no error here,
// because an engine's copy need not have the experts; ExpertsOf reports it when someone needs it.
absl::Status Checkpoint::FindAllExperts() {
  for (std::int32_t draft = 0; draft < config_.draft_layers; ++draft) {
    const LayerId layer{config_.layers + draft};
    absl::StatusOr<ExpertModules> modules = FindExpertModules(*this, ExpertLayerOf(config_, layer));
    if (modules.status().code() == absl::StatusCode::kNotFound) {
      config_.draft_layers = draft;
      break;
    }
    SY_RETURN_IF_ERROR(modules.status());
    SY_RETURN_IF_ERROR(AddExperts(layer, *std::move(modules)));
  }
  for (const LayerId layer : config_.moe_layers) {
    absl::StatusOr<ExpertModules> modules = FindExpertModules(*this, ExpertLayerOf(config_, layer));
    if (modules.status().code() == absl::StatusCode::kNotFound) {
      missing_.emplace(layer, modules.status());
      continue;
    }
    SY_RETURN_IF_ERROR(modules.status());
    SY_RETURN_IF_ERROR(AddExperts(layer, *std::move(modules)));
  }
  return absl::OkStatus();
}

absl::Status Checkpoint::AddExperts(LayerId layer, ExpertModules modules) {
  SY_ASSIGN_OR_RETURN(LayerQuant quant, ResolveLayerQuant(quant_, modules));
  experts_.try_emplace(layer, *this, std::move(modules), std::move(quant), ShapeOf(config_));
  return absl::OkStatus();
}

const LayerExperts* Checkpoint::FindExperts(LayerId layer) const {
  const auto at = experts_.find(layer);
  return at == experts_.end() ? nullptr : &at->second;
}

absl::StatusOr<const LayerExperts*> Checkpoint::ExpertsOf(LayerId layer) const {
  if (const LayerExperts* experts = FindExperts(layer)) return experts;
  const auto missing = missing_.find(layer);
  if (missing != missing_.end()) return missing->second;
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kUnknownLayer,
                   absl::StrCat("layer ", layer.value, " has no routed experts in this model"),
                   {{"layer", absl::StrCat(layer.value)}});
}

absl::StatusOr<LayerInputScales> Checkpoint::InputScalesOf(LayerId layer) const {
  // Held while reading, so that several threads that load one layer read its scales only once.
  const MutexLock lock(mutex_);
  const auto known = scales_.find(layer);
  if (known != scales_.end()) return known->second;
  SY_ASSIGN_OR_RETURN(const LayerExperts* experts, ExpertsOf(layer));
  SY_ASSIGN_OR_RETURN(const LayerInputScales scales, experts->InputScales());
  scales_.emplace(layer, scales);
  return scales;
}

}  // namespace switchyard
