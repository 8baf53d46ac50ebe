#include "model/quant/config/quant_families.h"

#include <array>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/config_reader.h"

namespace switchyard::internal {
namespace {

bool IsMethod(const QuantSources& sources, absl::string_view method) {
  return QuantMethodOf(sources) == method;
}

// Some checkpoints have only ModelOpt's own file, or no quant_method in config.json.
bool IsModelOpt(const QuantSources& sources) {
  if (!sources.quantization_config.has_value()) return sources.hf_quant_config.has_value();
  return absl::StartsWith(QuantMethodOf(sources), "modelopt") ||
         (QuantMethodOf(sources).empty() && sources.quantization_config->Has("quant_algo"));
}

// The order matters. A folder made from an FP8 checkpoint often keeps the old quantization_config,
// so a description wins, as in vLLM-Ascend. W4AFP8 checkpoints write "w4afp8" or names that contain
// it, as SGLang reads them.
constexpr std::array<QuantFamily, 6> kFamilies{{
    {"modelslim", [](const QuantSources& sources) { return sources.description.has_value(); },
     &ReadModelSlim},
    {"w4afp8",
     [](const QuantSources& sources) {
       return absl::StrContains(QuantMethodOf(sources), "w4afp8");
     },
     &ReadW4Afp8},
    {"fp8", [](const QuantSources& sources) { return IsMethod(sources, "fp8"); }, &ReadFp8},
    {"modelopt", &IsModelOpt, &ReadModelOpt},
    {"compressed-tensors",
     [](const QuantSources& sources) { return IsMethod(sources, "compressed-tensors"); },
     &ReadCompressedTensors},
    {"awq", [](const QuantSources& sources) { return IsMethod(sources, "awq"); }, &ReadAwq},
}};

constexpr std::array kDispatchKeys{"input_global_scale", "dispatcher_output_dtype",
                                   "bf16_dispatch"};

}  // namespace

std::span<const QuantFamily> QuantFamilies() { return kFamilies; }

std::string QuantMethodOf(const QuantSources& sources) {
  if (!sources.quantization_config.has_value()) return "";
  const auto method = sources.quantization_config->String("quant_method");
  return method.ok() ? method->value_or("") : "";
}

std::span<const char* const> DispatchKeyNames() { return kDispatchKeys; }

absl::Status ReadDispatchKeys(const JsonView& view, DispatchKeys& keys) {
  switch (view.PresenceOf("input_global_scale")) {
    case JsonView::Presence::kAbsent:
      keys.input_global_scale = KeyPresence::kAbsent;
      break;
    case JsonView::Presence::kNull:
      keys.input_global_scale = KeyPresence::kNull;
      break;
    case JsonView::Presence::kPresent:
      keys.input_global_scale = KeyPresence::kPresent;
      break;
  }
  SY_ASSIGN_OR_RETURN(keys.dispatcher_output_dtype, view.String("dispatcher_output_dtype"));
  SY_ASSIGN_OR_RETURN(keys.bf16_dispatch, view.Bool("bf16_dispatch"));
  return absl::OkStatus();
}

// These families describe all linear modules alike; the exclusions say which ones are not.
void AddEveryLinear(const JsonView& view, const ProjectionQuant& quant, QuantConfig& config) {
  QuantGroup group;
  group.key = view.path();
  group.every_linear = true;
  group.quant = quant;
  config.groups.push_back(std::move(group));
}

absl::Status ReadModulesToNotConvert(const JsonView& view, QuantConfig& config) {
  for (const char* key : {"modules_to_not_convert", "ignored_layers"}) {
    std::vector<std::string> modules;
    SY_RETURN_IF_ERROR(Optional(view.Strings(key), modules));
    for (const std::string& module : modules) {
      SY_RETURN_IF_ERROR(config.excluded.AddComponents(module, view.PathOf(key)));
    }
  }
  return absl::OkStatus();
}

}  // namespace switchyard::internal
