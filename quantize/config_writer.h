// The files beside the tensors that describe how the experts are stored, as each tool writes them.
//
//   form                  config.json                        beside it
//   fp8, w4afp8, awq      + quantization_config with         -
//                         modules_to_not_convert
//   compressed-tensors    + quantization_config, "ignore"    -
//   modelopt, flat        + quantization_config, "ignore"    -
//   modelopt, file        as it was                          hf_quant_config.json, exclude_modules
//   modelslim             as it was                          quant_model_description.json, a type
//                                                            for each tensor, "FLOAT" for BF16
//
// Everything that stays in BF16 is listed by name: each module with a matrix, and the experts'
// container of a layer that stays whole. model/quant/config/quant_config.h reads the files back.
// Pure; thread-safe.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/projection.h"
#include "quantize/scheme_table.h"

namespace switchyard {

// One tensor of the new checkpoint.
struct DescribedTensor {
  std::string name;
  bool is_matrix = false;  // rank 2 or more: engines assume that it is quantized
  // Set for those of quantized experts.
  bool quantized = false;
  Projection projection = Projection::kGate;
};

struct ConfigRequest {
  const WriteScheme* scheme = nullptr;
  absl::string_view config_json;         // of the BF16 checkpoint
  std::vector<DescribedTensor> tensors;  // all of the new checkpoint
  std::vector<std::string> quantized;    // containers of quantized layers
};

struct ConfigFile {
  std::string name;
  std::string text;
};

// config.json first. Errors: kInvalidArgument (BAD_CONFIG): config.json is not a JSON object, or
// already holds a quantization_config.
absl::StatusOr<std::vector<ConfigFile>> WriteQuantConfig(const ConfigRequest& request);

// Names of the modules that stay in BF16, ascending: "lm_head", "model.layers.0.mlp.gate",
// "model.layers.0.mlp.experts" for experts.
std::vector<std::string> ExcludedModules(const std::vector<DescribedTensor>& tensors);

}  // namespace switchyard
