#include "coordinator/model_loader.h"

#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "core/status_macros.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/model_spec.h"

namespace switchyard {

namespace {

// What the config files say, and the scale of NVFP4 rows where all experts have the same one. A
// null in the files switches such rows off.
absl::StatusOr<LayerQuantConfig> QuantConfigOf(const Checkpoint& checkpoint,
                                               const LayerExperts& experts, LayerId layer) {
  const DispatchKeys& keys = checkpoint.quant().dispatch;
  std::vector<ConfigEntry> entries;
  if (keys.dispatcher_output_dtype) {
    entries.push_back({"dispatcher_output_dtype", *keys.dispatcher_output_dtype});
  }
  if (keys.bf16_dispatch) entries.push_back({"bf16_dispatch", *keys.bf16_dispatch});
  SY_ASSIGN_OR_RETURN(LayerQuantConfig config, ParseLayerQuantConfig(entries));
  config.global_scale_is_null = keys.input_global_scale == KeyPresence::kNull;
  if (experts.quant().scheme == QuantScheme::kNvfp4 && !config.global_scale_is_null) {
    SY_ASSIGN_OR_RETURN(const LayerInputScales scales, checkpoint.InputScalesOf(layer));
    config.input_global_scale = scales.InputGlobalScale();
  }
  return config;
}

absl::StatusOr<LayerStorage> StorageOf(const Checkpoint& checkpoint, LayerId layer) {
  SY_ASSIGN_OR_RETURN(const LayerExperts* found, checkpoint.ExpertsOf(layer));
  const LayerExperts& experts = *found;
  LayerStorage storage;
  storage.scheme = experts.quant().scheme;
  storage.why = experts.quant().why;
  storage.power_of_two_scales = experts.quant().of(Projection::kGate).power_of_two_scales;
  const bool quantised = checkpoint.quant().family != "none";
  if (experts.modules().draft) {
    storage.role = LayerRole::kDraft;
    if (storage.scheme == QuantScheme::kNone) return storage;
  } else {
    storage.excluded = quantised && storage.scheme == QuantScheme::kNone;
  }
  if (quantised) {
    SY_ASSIGN_OR_RETURN(storage.quant_config, QuantConfigOf(checkpoint, experts, layer));
  }
  return storage;
}

ModelFacts FactsOf(const ModelConfig& config) {
  ModelFacts facts;
  facts.shape = ShapeOf(config);
  facts.layers = MoeLayersOf(config);
  facts.storage.resize(facts.layers.size());
  return facts;
}

absl::StatusOr<ModelFacts> FactsOf(const Checkpoint& checkpoint) {
  ModelFacts facts = FactsOf(checkpoint.config());
  for (std::size_t i = 0; i < facts.layers.size(); ++i) {
    SY_ASSIGN_OR_RETURN(facts.storage[i], StorageOf(checkpoint, facts.layers[i]));
  }
  SY_ASSIGN_OR_RETURN(facts.manifest, BuildManifest(checkpoint));
  return facts;
}

}  // namespace

absl::StatusOr<ModelFacts> LoadModelFacts(const std::string& checkpoint) {
  SY_ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(checkpoint));
  ModelFacts facts;
  if (const auto* model = std::get_if<SyntheticModel>(&spec)) {
    facts = FactsOf(ConfigOf(*model));
    SY_ASSIGN_OR_RETURN(facts.manifest, BuildManifest(*model));
  } else {
    SY_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> opened,
                        Checkpoint::Open(std::get<CheckpointFolder>(spec).path));
    SY_ASSIGN_OR_RETURN(facts, FactsOf(*opened));
  }
  SY_RETURN_IF_ERROR(CheckFacts(facts));
  return facts;
}

}  // namespace switchyard
