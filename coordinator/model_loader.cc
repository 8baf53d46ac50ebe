#include "coordinator/model_loader.h"

#include <memory>

#include "core/status_macros.h"
#include "model/checkpoint.h"
#include "model/expert_weights.h"
#include "model/model_config.h"

namespace switchyard {

absl::StatusOr<ModelFacts> LoadModelFacts(const std::string& checkpoint) {
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> files, Checkpoint::Open(checkpoint));
  ModelFacts facts;
  facts.shape = ShapeOf(files->config());
  facts.layers = MoeLayersOf(files->config());
  SY_ASSIGN_OR_RETURN(facts.manifest, BuildManifest(*files));
  SY_RETURN_IF_ERROR(CheckFacts(facts));
  return facts;
}

}  // namespace switchyard
