// quant_method "fp8": DeepSeek-V3's blocks, Qwen3's, and one scale for a tensor.
//
//   {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
//    "weight_block_size": [128, 128], "scale_fmt": "ue8m0", "modules_to_not_convert": [...]}
#include <array>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"
#include "model/quant/config/quant_families.h"

namespace switchyard::internal {
namespace {

constexpr std::array kKeys{"quant_method",       "fmt",
                           "modules_to_convert", "activation_scheme",
                           "scale_fmt",          "expert_dtype",
                           "weight_block_size",  "ignored_layers",
                           "dequantize",         "modules_to_not_convert",
                           "act_per_tensor",     "weight_per_tensor",
                           "kv_cache_scheme",    "kv_cache_quant_method"};

// For keys that have one served value: an absent key means that value.
absl::Status RequireText(const JsonView& view, const char* key, absl::string_view wanted) {
  SY_ASSIGN_OR_RETURN(const std::optional<std::string> value, view.String(key));
  if (!value.has_value() || *value == wanted) return absl::OkStatus();
  return UnsupportedConfig(view.PathOf(key), absl::StrCat("'", PrintableName(*value),
                                                          "' is not served, only '", wanted, "'"));
}

// The kernels sum each 128 of K, so other blocks have no place to apply their scales.
absl::Status ReadBlock(const JsonView& view, ProjectionQuant& quant) {
  std::vector<std::int32_t> block;
  SY_RETURN_IF_ERROR(Optional(view.Ints("weight_block_size", 1, 65'536), block));
  if (block.empty() && !view.Has("weight_block_size")) return absl::OkStatus();
  if (block != std::vector<std::int32_t>{128, 128}) {
    return UnsupportedConfig(view.PathOf("weight_block_size"),
                             "only blocks of [128, 128] are served");
  }
  SY_RETURN_IF_ERROR(view.MustBeOff("weight_per_tensor", "it contradicts weight_block_size"));
  SY_RETURN_IF_ERROR(view.MustBeOff("act_per_tensor", "it contradicts weight_block_size"));
  quant.layout = QuantLayout::kFp8Block;
  quant.block = {128, 128};
  return absl::OkStatus();
}

absl::Status ReadActivations(const JsonView& view, ProjectionQuant& quant) {
  std::string scheme;
  SY_RETURN_IF_ERROR(
      Require(view.String("activation_scheme"), view.PathOf("activation_scheme"), scheme));
  if (scheme != "dynamic" && scheme != "static") {
    return BadConfig(
        view.PathOf("activation_scheme"),
        absl::StrCat("it must be 'dynamic' or 'static', found '", PrintableName(scheme), "'"));
  }
  quant.static_inputs = scheme == "static";
  if (quant.static_inputs && quant.layout == QuantLayout::kFp8Block) {
    return UnsupportedConfig(view.PathOf("activation_scheme"),
                             "blocks of 128x128 need inputs with measured scales: 'dynamic'");
  }
  return absl::OkStatus();
}

// transformers 5.14 and later write "float" where the scales are any numbers.
absl::Status ReadScaleFormat(const JsonView& view, ProjectionQuant& quant) {
  std::string format = "float";
  SY_RETURN_IF_ERROR(Optional(view.String("scale_fmt"), format));
  if (format != "float" && format != "ue8m0") {
    return UnsupportedConfig(
        view.PathOf("scale_fmt"),
        absl::StrCat("'", PrintableName(format), "' is not served, only 'float' and 'ue8m0'"));
  }
  quant.power_of_two_scales = format == "ue8m0";
  if (quant.power_of_two_scales && quant.layout != QuantLayout::kFp8Block) {
    return BadConfig(view.PathOf("scale_fmt"), "it is valid only with weight_block_size");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadFp8(const QuantSources& sources, QuantConfig& config) {
  const JsonView& view = *sources.quantization_config;
  SY_RETURN_IF_ERROR(view.OnlyKeys(kKeys, DispatchKeyNames()));
  SY_RETURN_IF_ERROR(RequireText(view, "fmt", "e4m3"));
  SY_RETURN_IF_ERROR(RequireText(view, "expert_dtype", "fp8"));
  SY_RETURN_IF_ERROR(
      view.MustBeOff("modules_to_convert", "a list of what is quantized is not read"));
  ProjectionQuant quant{.layout = QuantLayout::kFp8Tensor};
  SY_RETURN_IF_ERROR(ReadBlock(view, quant));
  SY_RETURN_IF_ERROR(ReadActivations(view, quant));
  SY_RETURN_IF_ERROR(ReadScaleFormat(view, quant));
  SY_RETURN_IF_ERROR(ReadModulesToNotConvert(view, config));
  AddEveryLinear(view, quant, config);
  return ReadDispatchKeys(view, config.dispatch);
}

}  // namespace switchyard::internal
