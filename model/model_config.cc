#include "model/model_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "core/error.h"
#include "core/status_macros.h"
#include "model/checkpoint_error.h"
#include "model/config_reader.h"
#include "model/model_family.h"

namespace switchyard {
namespace {

absl::Status Unsupported(absl::string_view key, absl::string_view what) {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   absl::StrCat("model config, key '", key, "': ", what),
                   {{"key", std::string(key)}});
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json) {
  SY_ASSIGN_OR_RETURN(const ConfigReader reader, ConfigReader::Parse(json));
  ModelConfig config;
  SY_RETURN_IF_ERROR(Require(reader.String({"model_type"}), "model_type", config.model_type));
  const ModelFamily* family = FindModelFamily(config.model_type);
  if (family == nullptr) {
    return Unsupported("model_type",
                       absl::StrCat("'", PrintableName(config.model_type),
                                    "' cannot be served; supported: ", SupportedModelTypes()));
  }
  std::vector<std::string> architectures{family->architecture};
  SY_RETURN_IF_ERROR(Optional(reader.Strings({"architectures"}), architectures));
  if (std::find(architectures.begin(), architectures.end(), family->architecture) ==
      architectures.end()) {
    return BadConfig("architectures", absl::StrCat("model_type '", family->model_type, "' wants '",
                                                   family->architecture, "'"));
  }
  config.architecture = family->architecture;
  SY_RETURN_IF_ERROR(family->parse(reader, config));
  return config;
}

MoeShape ShapeOf(const ModelConfig& config) {
  return {.hidden = config.hidden_size,
          .intermediate = config.moe_intermediate,
          .experts = config.experts,
          .top_k = config.top_k};
}

std::vector<LayerId> MoeLayersOf(const ModelConfig& config) {
  std::vector<LayerId> layers;
  for (std::int32_t layer = 0; layer < config.layers; ++layer) {
    const bool dense = std::find(config.mlp_only_layers.begin(), config.mlp_only_layers.end(),
                                 layer) != config.mlp_only_layers.end();
    if (!dense && (layer + 1) % config.decoder_sparse_step == 0) layers.push_back(LayerId{layer});
  }
  for (std::int32_t draft = 0; draft < config.draft_layers; ++draft) {
    layers.push_back(LayerId{config.layers + draft});
  }
  return layers;
}

}  // namespace switchyard
