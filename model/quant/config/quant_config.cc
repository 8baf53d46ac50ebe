#include "model/quant/config/quant_config.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "nlohmann/json.hpp"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_json.h"
#include "model/io/config_reader.h"
#include "model/io/json_view.h"
#include "model/quant/config/quant_families.h"

namespace switchyard {
namespace {

using internal::JsonView;
using internal::QuantFamilies;
using internal::QuantFamily;
using internal::QuantSources;
using Json = nlohmann::json;

// Far above any real config; the parsed tree takes some 20 times as much memory as the text.
constexpr internal::JsonTreeLimits kLimits{.bytes_max = 8U << 20U, .depth_max = 32};

absl::StatusOr<Json> ParseObject(absl::string_view text, absl::string_view file) {
  absl::StatusOr<Json> root = internal::ParseJsonTree(text, kLimits);
  if (!root.ok()) return BadConfig(file, root.status().message());
  if (!root->is_object()) return BadConfig(file, "the text is not a JSON object");
  return root;
}

// Multimodal models keep the language model's config in text_config. Where both places have a quant
// config they must agree.
absl::StatusOr<std::optional<JsonView>> FindQuantizationConfig(const JsonView& root) {
  SY_ASSIGN_OR_RETURN(std::optional<JsonView> own, root.Object("quantization_config"));
  SY_ASSIGN_OR_RETURN(const std::optional<JsonView> text, root.Object("text_config"));
  if (!text.has_value()) return own;
  SY_ASSIGN_OR_RETURN(std::optional<JsonView> nested, text->Object("quantization_config"));
  if (!own.has_value()) return nested;
  if (nested.has_value() && !own->Equals(*nested)) {
    return BadConfig(nested->path(),
                     absl::StrCat("it contradicts '", own->path(), "'; remove the wrong one"));
  }
  return own;
}

const QuantFamily* FindFamily(const QuantSources& sources) {
  for (const QuantFamily& family : QuantFamilies()) {
    if (family.claims(sources)) return &family;
  }
  return nullptr;
}

absl::Status NoFamily(const QuantSources& sources) {
  const JsonView& view = *sources.quantization_config;
  // A mistyped quant_method gets the error about its type, not one about a missing family.
  SY_RETURN_IF_ERROR(view.String("quant_method").status());
  const std::string method = internal::QuantMethodOf(sources);
  return internal::UnsupportedConfig(
      view.PathOf("quant_method"),
      absl::StrCat(method.empty() ? "it is missing"
                                  : absl::StrCat("'", PrintableName(method), "' is not supported"),
                   "; supported: ", SupportedQuantFamilies()));
}

}  // namespace

absl::StatusOr<QuantConfig> ParseQuantConfig(const QuantConfigFiles& files) {
  SY_ASSIGN_OR_RETURN(const Json config_json, ParseObject(files.config_json, "config.json"));
  Json hf_json;
  QuantSources sources;
  SY_ASSIGN_OR_RETURN(sources.quantization_config,
                      FindQuantizationConfig(JsonView(config_json, "")));
  if (files.hf_quant_config.has_value()) {
    SY_ASSIGN_OR_RETURN(hf_json, ParseObject(*files.hf_quant_config, "hf_quant_config.json"));
    sources.hf_quant_config = JsonView(hf_json, "");
  }
  if (files.quant_model_description.has_value()) {
    sources.description = absl::string_view(*files.quant_model_description);
  }
  QuantConfig config;
  const QuantFamily* family = FindFamily(sources);
  if (family == nullptr) {
    if (sources.quantization_config.has_value()) return NoFamily(sources);
    return config;
  }
  config.family = family->name;
  SY_RETURN_IF_ERROR(family->read(sources, config));
  return config;
}

std::string SupportedQuantFamilies() {
  return absl::StrJoin(QuantFamilies(), ", ", [](std::string* out, const QuantFamily& family) {
    out->append(family.name);
  });
}

}  // namespace switchyard
