// Expert weights generated from a seed, for tests, benchmarks and demos without a checkpoint. The
// same seed gives the same weights on every worker.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "model/model_config.h"
#include "model/synthetic_model.h"
#include "worker/weights/weight_source.h"
#include "worker/weights/weight_verifier.h"

namespace switchyard {

// Generates each expert on demand, always in BF16, and keeps none. Thread-safe.
class SyntheticSource final : public WeightSource {
 public:
  // `check` must have the hashes of every expert that will be loaded; the coordinator computes them
  // from the same seed.
  SyntheticSource(const SyntheticModel& model, WeightCheck check);

  // Costs as much as generating the numbers of one expert.
  absl::StatusOr<ExpertWeights> Load(LayerId layer, ExpertId expert) override;
  [[nodiscard]] MoeShape shape() const override;
  [[nodiscard]] QuantScheme SchemeOf(LayerId) const override { return QuantScheme::kNone; }
  [[nodiscard]] std::string describe() const override;

 private:
  // Never changed, so Load needs no lock.
  const SyntheticModel model_;
  const ModelConfig config_;
  const WeightCheck check_;
};

}  // namespace switchyard
