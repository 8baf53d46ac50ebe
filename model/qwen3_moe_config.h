// config.json of Qwen3-MoE (transformers' Qwen3MoeConfig), in both spellings.
#pragma once

#include "absl/status/status.h"

#include "model/config_reader.h"
#include "model/model_config.h"

namespace switchyard {

// Fills `config`. Errors: those of ParseModelConfig.
absl::Status ParseQwen3MoeConfig(const ConfigReader& reader, ModelConfig& config);

}  // namespace switchyard
