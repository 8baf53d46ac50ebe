// The product's ModelLoader (coordinator/driver.h): sizes, layers, quant schemes and tensor hashes
// of a checkpoint folder or a synthetic model.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "coordinator/deployment.h"
#include "model/expert_weights.h"

namespace switchyard {

// `checkpoint` is a text in the form of model/model_spec.h. Cost: reads every byte of the routed
// experts once, and calls `progress` after each tensor or expert.
// Errors: those of ReadModelConfig and BuildManifest: (CHECKPOINT) naming file and tensor,
// kInvalidArgument (BAD_CONFIG), kUnimplemented (UNSUPPORTED); kCancelled when `progress` says so.
// Thread-safe.
absl::StatusOr<ModelFacts> LoadModelFacts(const std::string& checkpoint,
                                          const ManifestProgress& progress = nullptr);

}  // namespace switchyard
