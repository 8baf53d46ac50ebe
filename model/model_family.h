// The model families that can be served: how each writes its config and names its expert tensors.
//
// A family is one row in model_family.cc and one parse function. Thread-safe.
#pragma once

#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/weight_manifest.h"
#include "model/config_reader.h"
#include "model/model_config.h"

namespace switchyard {

struct ModelFamily {
  const char* model_type;    // config.json's "model_type"
  const char* architecture;  // config.json's "architectures"[0]
  // The rest of the config; model_type and architecture are set already.
  absl::Status (*parse)(const ConfigReader& reader, ModelConfig& config);
  // Names of the tensors of one expert, "{layer}" and "{expert}" standing for the numbers, in the
  // order of Projection.
  const char* expert_tensors[3];
};

std::span<const ModelFamily> ModelFamilies();
// nullptr when there is none of that model_type.
const ModelFamily* FindModelFamily(absl::string_view model_type);
// "qwen3_moe, ..." for error texts.
std::string SupportedModelTypes();

}  // namespace switchyard
