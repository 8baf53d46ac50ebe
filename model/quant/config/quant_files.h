// The quant config of a checkpoint folder.
#pragma once

#include "absl/status/statusor.h"

#include "model/quant/config/quant_config.h"
#include "model/safetensors/checkpoint_tensors.h"

namespace switchyard {

// Reads config.json and, where they exist, hf_quant_config.json and
// quant_model_description.json beside the tensors. Thread-safe.
// Errors: those of ParseQuantConfig, with metadata {dir}; (CHECKPOINT) IO_ERROR,
// NOT_A_REGULAR_FILE, HEADER_TOO_LARGE of a file that cannot be read.
absl::StatusOr<QuantConfig> LoadQuantConfig(const CheckpointTensors& tensors);

}  // namespace switchyard
