#include "worker/weights/weight_verifier.h"

#include <utility>

#include "core/base/status_macros.h"

namespace switchyard {

absl::StatusOr<ExpertWeights> Verified(const WeightCheck& check, const ModelConfig& config,
                                       LayerId layer, ExpertId expert, ExpertWeights weights) {
  if (!SY_MUTANT(check.mutant, kSkipWeightHash)) {
    SY_RETURN_IF_ERROR(VerifyExpert(config, layer, expert, weights, check.expected));
  }
  if (SY_MUTANT(check.mutant, kGateUpSwapped)) std::swap(weights.gate, weights.up);
  return weights;
}

}  // namespace switchyard
