#include "worker/weights/synthetic_source.h"

#include <utility>

#include "core/base/status_macros.h"

namespace switchyard {

SyntheticSource::SyntheticSource(const SyntheticModel& model, WeightCheck check)
    : model_(model), config_(ConfigOf(model)), check_(std::move(check)) {}

// Verified like a file: a worker of another version could generate different numbers.
absl::StatusOr<ExpertWeights> SyntheticSource::Load(LayerId layer, ExpertId expert) {
  SY_ASSIGN_OR_RETURN(ExpertWeights weights, GenerateExpert(model_, layer, expert));
  return Verified(check_, config_, layer, expert, std::move(weights));
}

MoeShape SyntheticSource::shape() const { return model_.shape; }

std::string SyntheticSource::describe() const { return ToString(model_); }

}  // namespace switchyard
