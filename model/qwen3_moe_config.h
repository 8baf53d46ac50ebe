// The decoder's part of config.json of Qwen3-MoE (transformers' Qwen3MoeConfig), in both spellings.
#pragma once

#include "absl/status/statusor.h"

#include "model/io/config_reader.h"
#include "model/model_config.h"

namespace switchyard {

// `config` has everything but the decoder. Errors: those of ParseModelConfig.
absl::StatusOr<DecoderConfig> ParseQwen3MoeDecoder(const ConfigReader& reader,
                                                   const ModelConfig& config);

}  // namespace switchyard
