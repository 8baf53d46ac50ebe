// The real ModelLoader: sizes, layers and tensor hashes out of a checkpoint folder.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "coordinator/deployment.h"

namespace switchyard {

// Reads every byte of the routed experts once. Errors: those of Checkpoint::Open and
// BuildManifest: (CHECKPOINT) naming file and tensor, kInvalidArgument (BAD_CONFIG),
// kUnimplemented (UNSUPPORTED). Thread-safe.
absl::StatusOr<ModelFacts> LoadModelFacts(const std::string& checkpoint);

}  // namespace switchyard
