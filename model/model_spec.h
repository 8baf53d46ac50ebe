// The origin of a model's weights as one text that coordinator and workers share: the path of a
// checkpoint folder, or a synthetic model. Thread-safe.
#pragma once

#include <string>
#include <variant>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/weight_manifest.h"
#include "model/expert_weights.h"
#include "model/model_config.h"
#include "model/synthetic_model.h"

namespace switchyard {

// The path as this machine sees it; every worker must see the same files under it.
struct CheckpointFolder {
  std::string path;
  friend bool operator==(const CheckpointFolder&, const CheckpointFolder&) = default;
};

using ModelSpec = std::variant<CheckpointFolder, SyntheticModel>;

// "synthetic:..." or a path. Opens no file. Errors: kInvalidArgument (BAD_CONFIG): empty text,
// those of ParseSyntheticModel.
absl::StatusOr<ModelSpec> ParseModelSpec(absl::string_view text);

// The model's config; ShapeOf and MoeLayersOf give the rest. A checkpoint is opened and its headers
// are checked. Errors: those of Checkpoint::Open.
absl::StatusOr<ModelConfig> ReadModelConfig(const ModelSpec& spec);
// Errors: those of Checkpoint::Open and LoadExpert; kCancelled when `progress` says so.
absl::StatusOr<WeightManifest> BuildManifest(const ModelSpec& spec,
                                             const ManifestProgress& progress = nullptr);

}  // namespace switchyard
