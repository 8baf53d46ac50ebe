// A checkpoint folder of a model whose experts can be served: its tensors, its config.json, and the
// storage of the experts of each layer. Immutable after Open, except for a cache of input scales;
// all calls are thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "core/base/mutex.h"
#include "core/ids.h"
#include "model/experts/expert_names.h"
#include "model/experts/layer_experts.h"
#include "model/model_config.h"
#include "model/quant/config/quant_config.h"
#include "model/safetensors/checkpoint_tensors.h"

namespace switchyard {

// The layer, model type and role by which FindExpertModules finds the experts of `layer`, one of
// MoeLayersOf.
ExpertLayer ExpertLayerOf(const ModelConfig& config, LayerId layer);

class Checkpoint : public CheckpointTensors {
 public:
  // Reads configs and headers, no tensor.
  // Errors: those of CheckpointTensors::Open, ParseModelConfig, LoadQuantConfig and
  // ResolveLayerQuant.
  static absl::StatusOr<std::unique_ptr<Checkpoint>> Open(const std::string& dir,
                                                          const SafetensorsLimits& limits = {});

  // Draft layers that config.json announces but that have no tensors are left out.
  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const QuantConfig& quant() const { return quant_; }
  // nullptr for a layer without routed experts, and for one whose experts are not in this folder:
  // an engine's copy need not have them.
  [[nodiscard]] const LayerExperts* FindExperts(LayerId layer) const;
  // The same, with the reason as an error. Errors: kInvalidArgument (UNKNOWN_LAYER); kNotFound
  // (CHECKPOINT, TENSOR_NOT_FOUND) with the names that were tried.
  [[nodiscard]] absl::StatusOr<const LayerExperts*> ExpertsOf(LayerId layer) const;
  // The input scales of `layer`, which has experts; read on the first call. Errors: as
  // LayerExperts::InputScales.
  [[nodiscard]] absl::StatusOr<LayerInputScales> InputScalesOf(LayerId layer) const;

 private:
  Checkpoint(CheckpointTensors tensors, ModelConfig config, QuantConfig quant);
  // Finds the experts of every layer when the checkpoint is opened, so that a wrong folder fails
  // before any plan names it.
  absl::Status FindAllExperts();
  absl::Status AddExperts(LayerId layer, ExpertModules modules);

  ModelConfig config_;
  const QuantConfig quant_;
  std::map<LayerId, LayerExperts> experts_;
  // For each layer without experts here: why, for ExpertsOf.
  std::map<LayerId, absl::Status> missing_;
  mutable Mutex mutex_;
  mutable std::map<LayerId, LayerInputScales> scales_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
