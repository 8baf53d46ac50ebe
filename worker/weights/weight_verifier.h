// The last step of every WeightSource: compares the weights with the deployment's manifest. Two
// workers with different files under one path would otherwise serve different models.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "core/ids.h"
#include "core/weight_manifest.h"
#include "model/expert_weights.h"
#include "model/model_config.h"

namespace switchyard {

// The hashes against which a source checks its weights.
struct WeightCheck {
  std::vector<TensorHash> expected;  // one entry for each tensor of each expert to load
};

// Returns `weights` if they match the check; otherwise the error of VerifyExpert. `config` gives
// the shapes from which tensor names and sizes follow. Costs a SHA-256 over the expert's bytes.
// Thread-safe.
absl::StatusOr<ExpertWeights> Verified(const WeightCheck& check, const ModelConfig& config,
                                       LayerId layer, ExpertId expert, ExpertWeights weights);

}  // namespace switchyard
