#include "coordinator/model_loader.h"

#include "core/status_macros.h"
#include "model/model_config.h"
#include "model/model_spec.h"

namespace switchyard {

absl::StatusOr<ModelFacts> LoadModelFacts(const std::string& checkpoint) {
  SY_ASSIGN_OR_RETURN(const ModelSpec spec, ParseModelSpec(checkpoint));
  SY_ASSIGN_OR_RETURN(const ModelConfig config, ReadModelConfig(spec));
  ModelFacts facts;
  facts.shape = ShapeOf(config);
  facts.layers = MoeLayersOf(config);
  SY_ASSIGN_OR_RETURN(facts.manifest, BuildManifest(spec));
  SY_RETURN_IF_ERROR(CheckFacts(facts));
  return facts;
}

}  // namespace switchyard
