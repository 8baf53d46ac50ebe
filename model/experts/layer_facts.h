// The facts about a checkpoint's layer that the resolver of wire dtypes receives. Plans and
// inspections both take them from here, so that an operator cannot see two different answers. Pure;
// thread-safe.
#pragma once

#include <optional>

#include "absl/status/statusor.h"

#include "core/resolve/dispatch_resolver.h"
#include "model/experts/layer_experts.h"
#include "model/quant/config/layer_quant.h"
#include "model/quant/config/quant_config.h"

namespace switchyard {

// The sources of the facts about one layer.
struct LayerSource {
  LayerId layer = {};
  LayerRole role = LayerRole::kBase;
  bool quantized_checkpoint = false;  // its quant family is not "none"
  const LayerQuant& quant;
  const DispatchKeys& keys;                                     // of the whole checkpoint
  std::optional<LayerInputScales> input_scales = std::nullopt;  // used only for NVFP4
};

// Every layer has its scheme and whether its FP8 scales are powers of two. In a quantized
// checkpoint, base layers without a scheme are marked as excluded, and all layers but unquantized
// drafts have the keys of the config. NVFP4 layers also have the global scale of their inputs where
// all experts agree on one, unless the config's key is null. Errors: those of
// ParseLayerQuantConfig.
absl::StatusOr<LayerFacts> ResolverFactsOf(const LayerSource& source);

}  // namespace switchyard
