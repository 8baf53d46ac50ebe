// quant_method "w4afp8": INT4 experts in groups of 128 with one static FP8 scale for their inputs;
// the other keys describe the linear layers beside them, which are FP8 in blocks.
#include <array>

#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/io/config_reader.h"
#include "model/quant/config/quant_families.h"

namespace switchyard::internal {
namespace {

constexpr std::array kKeys{"quant_method",
                           "fmt",
                           "activation_scheme",
                           "weight_block_size",
                           "scale_fmt",
                           "moe_weight_format",
                           "linear_activation_scheme",
                           "moe_activation_scheme",
                           "group_size",
                           "weight_format",
                           "linear_weight_format",
                           "modules_to_not_convert",
                           "ignored_layers"};

absl::Status RequireText(const JsonView& view, const char* key, absl::string_view wanted) {
  SY_ASSIGN_OR_RETURN(const std::optional<std::string> value, view.String(key));
  if (!value.has_value() || *value == wanted) return absl::OkStatus();
  return UnsupportedConfig(view.PathOf(key), absl::StrCat("experts with '", PrintableName(*value),
                                                          "' are not served, only '", wanted, "'"));
}

}  // namespace

absl::Status ReadW4Afp8(const QuantSources& sources, QuantConfig& config) {
  const JsonView& view = *sources.quantization_config;
  SY_RETURN_IF_ERROR(view.OnlyKeys(kKeys, DispatchKeyNames()));
  SY_RETURN_IF_ERROR(RequireText(view, "weight_format", "int4"));
  SY_RETURN_IF_ERROR(RequireText(view, "moe_weight_format", "int4"));
  SY_RETURN_IF_ERROR(RequireText(view, "moe_activation_scheme", "static"));
  ProjectionQuant quant{.layout = QuantLayout::kW4Afp8, .group_size = 128, .static_inputs = true};
  SY_RETURN_IF_ERROR(Optional(view.Int("group_size", 1, 65'536), quant.group_size));
  if (quant.group_size != 128) {
    return UnsupportedConfig(
        view.PathOf("group_size"),
        absl::StrCat("groups of ", quant.group_size, " are not served, only of 128"));
  }
  SY_RETURN_IF_ERROR(ReadModulesToNotConvert(view, config));
  AddEveryLinear(view, quant, config);
  return ReadDispatchKeys(view, config.dispatch);
}

}  // namespace switchyard::internal
