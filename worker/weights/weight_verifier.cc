#include "worker/weights/weight_verifier.h"

#include "core/base/status_macros.h"

namespace switchyard {

absl::StatusOr<ExpertWeights> Verified(const WeightCheck& check, const ModelConfig& config,
                                       LayerId layer, ExpertId expert, ExpertWeights weights) {
  SY_RETURN_IF_ERROR(VerifyExpert(config, layer, expert, weights, check.expected));
  return weights;
}

}  // namespace switchyard
