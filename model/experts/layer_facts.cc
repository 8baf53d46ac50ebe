#include "model/experts/layer_facts.h"

#include <vector>

#include "core/base/status_macros.h"

namespace switchyard {
namespace {

absl::StatusOr<LayerQuantConfig> QuantConfigOf(const LayerSource& source) {
  const DispatchKeys& keys = source.keys;
  std::vector<ConfigEntry> entries;
  if (keys.dispatcher_output_dtype) {
    entries.push_back({"dispatcher_output_dtype", *keys.dispatcher_output_dtype});
  }
  if (keys.bf16_dispatch) entries.push_back({"bf16_dispatch", *keys.bf16_dispatch});
  SY_ASSIGN_OR_RETURN(LayerQuantConfig config, ParseLayerQuantConfig(entries));
  config.global_scale_is_null = keys.input_global_scale == KeyPresence::kNull;
  // Only NVFP4 rows are encoded relative to a global scale.
  if (source.quant.scheme == QuantScheme::kNvfp4 && !config.global_scale_is_null &&
      source.input_scales) {
    config.input_global_scale = source.input_scales->InputGlobalScale();
  }
  return config;
}

}  // namespace

absl::StatusOr<LayerFacts> ResolverFactsOf(const LayerSource& source) {
  LayerFacts facts;
  facts.layer = source.layer;
  facts.role = source.role;
  facts.scheme = source.quant.scheme;
  facts.power_of_two_scales = source.quant.of(Projection::kGate).power_of_two_scales;
  if (!source.quantized_checkpoint) return facts;
  const bool plain = source.quant.scheme == QuantScheme::kNone;
  // An unquantized draft beside a quantized model is normal: it was not excluded, and the keys of
  // the config speak about the model's layers.
  if (plain && source.role == LayerRole::kDraft) return facts;
  facts.excluded = plain;
  SY_ASSIGN_OR_RETURN(facts.quant_config, QuantConfigOf(source));
  return facts;
}

}  // namespace switchyard
