#include "tests/testing/quantized_model.h"

#include "core/base/status_macros.h"
#include "model/checkpoint.h"
#include "quantize/quantizer.h"
#include "quantize/scheme_table.h"

namespace switchyard::testing {

absl::Status QuantizeModel(const std::string& in, const std::string& scheme,
                           const std::string& out) {
  QuantizeOptions options;
  SY_ASSIGN_OR_RETURN(options.scheme, FindWriteScheme(scheme));
  options.in = in;
  options.out = out;
  if (options.scheme->needs_calibration()) {
    SY_ASSIGN_OR_RETURN(const auto checkpoint, Checkpoint::Open(in));
    const ModelConfig& config = checkpoint->config();
    AmaxTable amax;
    for (const LayerId layer : config.moe_layers) {
      // No round numbers: rows would lie on ties of the coarser formats.
      amax.layers.push_back(
          {layer.value, std::vector<ExpertAmax>(static_cast<std::size_t>(config.experts),
                                                ExpertAmax{.gate_up = 4.5371F, .down = 3.1029F})});
    }
    options.calibration = std::move(amax);
  }
  return Quantize(options).status();
}

}  // namespace switchyard::testing
