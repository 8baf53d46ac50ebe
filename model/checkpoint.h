// A checkpoint folder of a model family that can be served: its tensors, and config.json beside
// them. Immutable after Open; all calls are thread-safe.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "model/checkpoint_tensors.h"
#include "model/model_config.h"

namespace switchyard {

class Checkpoint : public CheckpointTensors {
 public:
  // Reads config and headers, no tensor.
  // Errors: those of CheckpointTensors::Open and ParseModelConfig.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& dir,
                                                          const SafetensorsLimits& limits = {});

  [[nodiscard]] const ModelConfig& config() const { return config_; }

 private:
  Checkpoint(CheckpointTensors tensors, ModelConfig config);

  const ModelConfig config_;
};

}  // namespace switchyard
