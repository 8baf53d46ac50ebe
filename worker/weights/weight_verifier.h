// What every WeightSource does last: compare the weights with the deployment's manifest.
#pragma once

#include <span>
#include <vector>

#include "absl/status/statusor.h"

#include "core/ids.h"
#include "core/mutant.h"
#include "core/weight_manifest.h"
#include "model/expert_weights.h"
#include "model/model_config.h"

namespace switchyard {

// What a source checks its weights against.
struct WeightCheck {
  std::vector<TensorHash> expected;  // a row for each tensor of each expert that is loaded
  MutantId mutant = MutantId::kNone;
};

// `weights` when they are those of the check; else VerifyExpert's error. Thread-safe.
absl::StatusOr<ExpertWeights> Verified(const WeightCheck& check, const ModelConfig& config,
                                       LayerId layer, ExpertId expert, ExpertWeights weights);

}  // namespace switchyard
