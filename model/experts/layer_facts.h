// What the resolver of wire dtypes gets to know of a layer of a checkpoint. Plans and inspections
// ask here and nowhere else, so that they cannot tell an operator two things. Pure; thread-safe.
#pragma once

#include <optional>

#include "absl/status/statusor.h"

#include "core/resolve/dispatch_resolver.h"
#include "model/experts/layer_experts.h"
#include "model/quant/config/layer_quant.h"
#include "model/quant/config/quant_config.h"

namespace switchyard {

// What is known of one layer before the resolver is asked.
struct LayerSource {
  LayerId layer = {};
  LayerRole role = LayerRole::kBase;
  bool quantized_checkpoint = false;  // its quant family is not "none"
  const LayerQuant& quant;
  const DispatchKeys& keys;                                     // of the whole checkpoint
  std::optional<LayerInputScales> input_scales = std::nullopt;  // looked at for NVFP4 alone
};

// The scheme; whether FP8 scales are powers of two; of base layers without a scheme in a quantized
// checkpoint, that they were left out; of all layers of such a checkpoint but unquantized drafts,
// the keys of the config and, of NVFP4, the global scale of the inputs where all experts agree on
// one. A null in the config switches that one off.
// Errors: those of ParseLayerQuantConfig.
absl::StatusOr<LayerFacts> ResolverFactsOf(const LayerSource& source);

}  // namespace switchyard
