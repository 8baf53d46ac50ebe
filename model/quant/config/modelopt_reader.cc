// NVIDIA ModelOpt, in either of its files:
//
//   config.json, quantization_config            hf_quant_config.json
//   {"quant_method": "modelopt",                {"producer": {...},
//    "quant_algo": "NVFP4",                      "quantization": {"quant_algo": "NVFP4",
//    "ignore": ["lm_head", ...],                   "exclude_modules": ["lm_head", ...],
//    "config_groups": {"group_0": {               "group_size": 16,
//      "weights": {"group_size": 16, ...},         "kv_cache_quant_algo": "FP8"}}
//      "input_activations": {...},
//      "targets": ["Linear"]}}}
//
// Checkpoints often hold both; the two must then agree on the weights.
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"
#include "model/quant/config/quant_families.h"

namespace switchyard::internal {
namespace {

constexpr std::array kKeys{"quant_method",    "quant_algo",           "ignore",
                           "exclude_modules", "group_size",           "config_groups",
                           "kv_cache_scheme", "kv_cache_quant_algo",  "producer",
                           "quantization",    "has_zero_point",       "pre_quant_scale",
                           "version",         "kv_cache_quant_scheme"};

absl::Status ReadAlgorithm(const JsonView& view, ProjectionQuant& quant) {
  std::string algorithm;
  SY_RETURN_IF_ERROR(Require(view.String("quant_algo"), view.PathOf("quant_algo"), algorithm));
  absl::AsciiStrToUpper(&algorithm);
  if (algorithm == "NVFP4") {
    quant = {.layout = QuantLayout::kNvfp4ModelOpt, .group_size = 16, .static_inputs = true};
    return absl::OkStatus();
  }
  if (algorithm == "FP8") {
    quant = {.layout = QuantLayout::kFp8Tensor, .static_inputs = true};
    return absl::OkStatus();
  }
  return UnsupportedConfig(
      view.PathOf("quant_algo"),
      absl::StrCat("'", PrintableName(algorithm), "' is not served, only NVFP4 and FP8"));
}

absl::Status CheckGroupSize(const JsonView& view, const ProjectionQuant& quant) {
  SY_ASSIGN_OR_RETURN(const std::optional<std::int32_t> size, view.Int("group_size", 0, 65'536));
  if (quant.layout != QuantLayout::kNvfp4ModelOpt || !size.has_value() || *size == 16) {
    return absl::OkStatus();
  }
  return UnsupportedConfig(view.PathOf("group_size"),
                           absl::StrCat("NVFP4 has groups of 16, found ", *size));
}

// The flat form may repeat the group size for each of its groups.
absl::Status CheckGroups(const JsonView& view, const ProjectionQuant& quant) {
  SY_ASSIGN_OR_RETURN(const std::optional<JsonView> groups, view.Object("config_groups"));
  if (!groups.has_value()) return absl::OkStatus();
  for (const std::string& name : groups->keys()) {
    SY_ASSIGN_OR_RETURN(const std::optional<JsonView> group, groups->Object(name.c_str()));
    if (!group.has_value()) return BadConfig(groups->PathOf(name), "it is null; remove it");
    SY_ASSIGN_OR_RETURN(const std::optional<JsonView> weights, group->Object("weights"));
    if (weights.has_value()) SY_RETURN_IF_ERROR(CheckGroupSize(*weights, quant));
  }
  return absl::OkStatus();
}

absl::Status ReadExclusions(const JsonView& view, QuantConfig& config) {
  for (const char* key : {"ignore", "exclude_modules"}) {
    std::vector<std::string> globs;
    SY_RETURN_IF_ERROR(Optional(view.Strings(key), globs));
    for (const std::string& glob : globs) {
      SY_RETURN_IF_ERROR(config.excluded.AddGlob(glob, view.PathOf(key)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ProjectionQuant> ReadOne(const JsonView& view, QuantConfig& config) {
  SY_RETURN_IF_ERROR(view.OnlyKeys(kKeys, DispatchKeyNames()));
  SY_RETURN_IF_ERROR(view.MustBeOff("has_zero_point", "zero points are not served"));
  SY_RETURN_IF_ERROR(
      view.MustBeOff("pre_quant_scale", "scales of inputs before quantizing are not served"));
  ProjectionQuant quant;
  SY_RETURN_IF_ERROR(ReadAlgorithm(view, quant));
  SY_RETURN_IF_ERROR(CheckGroupSize(view, quant));
  SY_RETURN_IF_ERROR(CheckGroups(view, quant));
  SY_RETURN_IF_ERROR(ReadExclusions(view, config));
  return quant;
}

// The object that describes the weights: the file's "quantization", or the whole flat form.
absl::StatusOr<JsonView> Innermost(const JsonView& view) {
  SY_ASSIGN_OR_RETURN(const std::optional<JsonView> nested, view.Object("quantization"));
  return nested.has_value() ? *nested : view;
}

}  // namespace

absl::Status ReadModelOpt(const QuantSources& sources, QuantConfig& config) {
  std::optional<ProjectionQuant> first;
  for (const auto& source : {sources.quantization_config, sources.hf_quant_config}) {
    if (!source.has_value()) continue;
    SY_ASSIGN_OR_RETURN(const JsonView view, Innermost(*source));
    SY_ASSIGN_OR_RETURN(const ProjectionQuant quant, ReadOne(view, config));
    // The exclusions of both files are joined, but the weights have one layout.
    if (first.has_value()) {
      if (*first == quant) continue;
      return BadConfig("hf_quant_config.json",
                       "it contradicts quantization_config of config.json; remove the wrong one");
    }
    first = quant;
    AddEveryLinear(view, quant, config);
    SY_RETURN_IF_ERROR(ReadDispatchKeys(view, config.dispatch));
  }
  return absl::OkStatus();
}

}  // namespace switchyard::internal
