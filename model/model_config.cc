#include "model/model_config.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "model/decoder_family.h"
#include "model/experts/moe_outline.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"

namespace switchyard {
namespace {

absl::Status OtherActivation(const std::string& key, absl::string_view what) {
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   absl::StrCat("model config, key '", key, "': experts compute silu, ", what),
                   {{"key", key}});
}

// Checks the keys that serving a model needs and inspecting it does not.
absl::Status CheckServed(const MoeOutline& outline) {
  if (outline.shape.top_k == 0) return BadConfig("num_experts_per_tok", "it is missing");
  if (!outline.activation_changed_by.empty()) {
    return OtherActivation(outline.activation_changed_by, "and this key means another function");
  }
  if (outline.activation == "silu") return absl::OkStatus();
  return OtherActivation("hidden_act",
                         absl::StrCat("not '", PrintableName(outline.activation), "'"));
}

ModelConfig ConfigOf(MoeOutline outline) {
  ModelConfig config;
  config.model_type = std::move(outline.model_type);
  config.hidden_size = outline.shape.hidden;
  config.layers = outline.layers;
  config.draft_layers = outline.drafts;
  config.experts = outline.shape.experts;
  config.top_k = outline.shape.top_k;
  config.moe_intermediate = outline.shape.intermediate;
  config.moe_layers = std::move(outline.moe_layers);
  return config;
}

// `family` is that of the config, or nullptr.
// A decoder is written for one architecture, so a family that has one insists on its name; others
// are only deployed, and keep whatever name the config has.
absl::Status ReadArchitecture(const ConfigReader& reader, const DecoderFamily* family,
                              ModelConfig& config) {
  std::vector<std::string> architectures;
  if (family != nullptr) architectures = {family->architecture};
  SY_RETURN_IF_ERROR(Optional(reader.Strings({"architectures"}), architectures));
  if (family == nullptr) {
    if (!architectures.empty()) config.architecture = architectures.front();
    return absl::OkStatus();
  }
  if (std::find(architectures.begin(), architectures.end(), family->architecture) ==
      architectures.end()) {
    return BadConfig("architectures", absl::StrCat("model_type '", family->model_type, "' wants '",
                                                   family->architecture, "'"));
  }
  config.architecture = family->architecture;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelConfig> ParseModelConfig(absl::string_view json) {
  SY_ASSIGN_OR_RETURN(MoeOutline outline, ParseMoeOutline(json));
  // Before the decoder's keys, so that a family without a decoder gets the same errors.
  SY_RETURN_IF_ERROR(CheckServed(outline));
  ModelConfig config = ConfigOf(std::move(outline));
  SY_ASSIGN_OR_RETURN(const ConfigReader reader, ConfigReader::Parse(json));
  const DecoderFamily* family = FindDecoderFamily(config.model_type);
  SY_RETURN_IF_ERROR(ReadArchitecture(reader, family, config));
  SY_RETURN_IF_ERROR(Optional(reader.String({"dtype", "torch_dtype"}), config.dtype));
  if (family == nullptr) return config;
  SY_ASSIGN_OR_RETURN(config.decoder, family->parse(reader, config));
  return config;
}

MoeShape ShapeOf(const ModelConfig& config) {
  return {.hidden = config.hidden_size,
          .intermediate = config.moe_intermediate,
          .experts = config.experts,
          .top_k = config.top_k};
}

std::vector<LayerId> MoeLayersOf(const ModelConfig& config) {
  std::vector<LayerId> layers = config.moe_layers;
  for (std::int32_t draft = 0; draft < config.draft_layers; ++draft) {
    layers.push_back(LayerId{config.layers + draft});
  }
  return layers;
}

}  // namespace switchyard
