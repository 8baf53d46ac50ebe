// quant_model_description.json. Unsupported types are refused only for experts (layer_quant.h),
// because the rest of the model may be stored in any way.
#include "absl/strings/str_cat.h"

#include "core/base/status_macros.h"
#include "model/io/checkpoint_error.h"
#include "model/quant/config/quant_families.h"

namespace switchyard::internal {

absl::Status ReadModelSlim(const QuantSources& sources, QuantConfig& config) {
  SY_ASSIGN_OR_RETURN(config.description, ModelSlimDescription::Parse(*sources.description));
  if (!sources.quantization_config.has_value()) return absl::OkStatus();
  const JsonView& view = *sources.quantization_config;
  const std::string method = QuantMethodOf(sources);
  if (method != "ascend" && method != "modelslim") {
    config.warnings.push_back(absl::StrCat(
        view.path(), " of config.json (quant_method '", PrintableName(method),
        "') is not used: quant_model_description.json says how the weights are stored."));
  }
  return ReadDispatchKeys(view, config.dispatch);
}

}  // namespace switchyard::internal
