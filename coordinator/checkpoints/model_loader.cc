#include "coordinator/checkpoints/model_loader.h"

#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/status_macros.h"
#include "model/checkpoint.h"
#include "model/experts/layer_facts.h"
#include "model/model_config.h"
#include "model/model_spec.h"

namespace switchyard {

namespace {

absl::StatusOr<LayerStorage> StorageOf(const Checkpoint& checkpoint, LayerId layer) {
  SY_ASSIGN_OR_RETURN(const LayerExperts* experts, checkpoint.ExpertsOf(layer));
  const LayerQuant& quant = experts->quant();
  // The resolver's inputs are computed here, once, and stored: planning never opens a checkpoint.
  LayerSource source{.layer = layer,
                     .role = experts->modules().draft ? LayerRole::kDraft : LayerRole::kBase,
                     .quantized_checkpoint = checkpoint.quant().family != "none",
                     .quant = quant,
                     .keys = checkpoint.quant().dispatch,
                     .input_scales = std::nullopt};
  // Only NVFP4 rows need them, and to read them for every layer would open every shard.
  if (quant.scheme == QuantScheme::kNvfp4) {
    SY_ASSIGN_OR_RETURN(source.input_scales, checkpoint.InputScalesOf(layer));
  }
  SY_ASSIGN_OR_RETURN(LayerFacts facts, ResolverFactsOf(source));
  return LayerStorage{.scheme = quant.scheme,
                      .role = facts.role,
                      .excluded = facts.excluded,
                      .power_of_two_scales = facts.power_of_two_scales,
                      .quant_config = std::move(facts.quant_config),
                      .why = quant.why};
}

ModelFacts FactsOf(const ModelConfig& config) {
  ModelFacts facts;
  facts.shape = ShapeOf(config);
  facts.layers = MoeLayersOf(config);
  facts.storage.resize(facts.layers.size());  // A synthetic model is not quantized.
  return facts;
}

absl::StatusOr<ModelFacts> FactsOf(const Checkpoint& checkpoint) {
  ModelFacts facts = FactsOf(checkpoint.config());
  for (std::size_t i = 0; i < facts.layers.size(); ++i) {
    SY_ASSIGN_OR_RETURN(facts.storage[i], StorageOf(checkpoint, facts.layers[i]));
  }
  return facts;
}

absl::StatusOr<ModelFacts> Load(const std::string& checkpoint, const ManifestProgress& progress,
                                int threads) {
  SY_ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(checkpoint));
  ModelFacts facts;
  if (const auto* model = std::get_if<SyntheticModel>(&spec)) {
    facts = FactsOf(ConfigOf(*model));
    SY_ASSIGN_OR_RETURN(facts.manifest, BuildManifest(*model, progress));
  } else {
    SY_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> opened,
                        Checkpoint::Open(std::get<CheckpointFolder>(spec).path));
    SY_ASSIGN_OR_RETURN(facts, FactsOf(*opened));
    // Last, since it reads every weight: a checkpoint whose layers cannot be served is refused at
    // once.
    SY_ASSIGN_OR_RETURN(facts.manifest, BuildManifest(*opened, progress, threads));
  }
  // Here and not only in the coordinator: from here on every part indexes by these facts.
  SY_RETURN_IF_ERROR(CheckFacts(facts));
  return facts;
}

}  // namespace

absl::StatusOr<ModelFacts> CheckModelFacts(const std::string& checkpoint) {
  SY_ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(checkpoint));
  if (const auto* model = std::get_if<SyntheticModel>(&spec)) return FactsOf(ConfigOf(*model));
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> opened,
                      Checkpoint::Open(std::get<CheckpointFolder>(spec).path));
  return FactsOf(*opened);
}

absl::StatusOr<ModelFacts> LoadModelFacts(const std::string& checkpoint,
                                          const ManifestProgress& progress) {
  return Load(checkpoint, progress, 1);
}

ModelLoader LoaderWithThreads(int threads) {
  return [threads](const std::string& checkpoint, const ManifestProgress& progress) {
    return Load(checkpoint, progress, threads);
  };
}

}  // namespace switchyard
