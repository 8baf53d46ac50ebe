#include "model/model_spec.h"

#include <memory>

#include "absl/strings/match.h"

#include "core/base/status_macros.h"
#include "model/checkpoint.h"
#include "model/io/config_reader.h"

namespace switchyard {

absl::StatusOr<ModelSpec> ParseModelSpec(absl::string_view text) {
  if (absl::StartsWith(text, kSyntheticPrefix)) {
    SY_ASSIGN_OR_RETURN(const SyntheticModel model, ParseSyntheticModel(text));
    return ModelSpec(model);
  }
  if (text.empty()) {
    return BadConfig("",
                     "the model is empty; give the path of a checkpoint folder, or synthetic:...");
  }
  // Whether the path exists is found when it is opened, on the machine that opens it.
  return ModelSpec(CheckpointFolder{std::string(text)});
}

absl::StatusOr<ModelConfig> ReadModelConfig(const ModelSpec& spec) {
  if (const auto* model = std::get_if<SyntheticModel>(&spec)) return ConfigOf(*model);
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                      Checkpoint::Open(std::get<CheckpointFolder>(spec).path));
  // Opening checks all headers, so that a config is never returned for a folder that cannot be
  // served.
  return checkpoint->config();
}

absl::StatusOr<WeightManifest> BuildManifest(const ModelSpec& spec,
                                             const ManifestProgress& progress) {
  if (const auto* model = std::get_if<SyntheticModel>(&spec)) {
    return BuildManifest(*model, progress);
  }
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                      Checkpoint::Open(std::get<CheckpointFolder>(spec).path));
  return BuildManifest(*checkpoint, progress);
}

}  // namespace switchyard
