// Expert weights from a checkpoint folder of safetensors files.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "model/checkpoint.h"
#include "worker/weights/weight_source.h"
#include "worker/weights/weight_verifier.h"

namespace switchyard {

// Reads each expert on demand and keeps no copy: the device holds the weights, and a second copy
// would double the memory of a worker. Only the files' headers stay in memory. Thread-safe.
class SafetensorsSource final : public WeightSource {
 public:
  // `check` must have the hashes of every expert that will be loaded.
  SafetensorsSource(std::unique_ptr<const Checkpoint> checkpoint, WeightCheck check);

  // Blocks for the read; several threads may read at once.
  absl::StatusOr<ExpertWeights> Load(LayerId layer, ExpertId expert) override;
  [[nodiscard]] MoeShape shape() const override;
  [[nodiscard]] QuantScheme SchemeOf(LayerId layer) const override;
  // The path of the folder, which error texts need.
  [[nodiscard]] std::string describe() const override;

 private:
  const std::unique_ptr<const Checkpoint> checkpoint_;
  const WeightCheck check_;
};

}  // namespace switchyard
