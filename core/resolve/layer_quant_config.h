// The statements of a checkpoint, or of its loader, about the rows that one layer takes.
//
// A value: another config replaces it whole; keys are never merged. Source of the keys: SGLang's
// set_quant_config (PRs 22822, 24906). Pure; thread-safe.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <variant>

#include "absl/status/statusor.h"

#include "core/format/dtype.h"

namespace switchyard {

// All unset: the checkpoint says nothing, and the rules decide.
struct LayerQuantConfig {
  // For NVFP4 rows: 1 / the checkpoint's input scale, one for all experts of the layer. Finite, >
  // 0.
  std::optional<float> input_global_scale;
  bool global_scale_is_null = false;  // the key has no value and counts as absent
  std::optional<DispatchDtype> dispatcher_output_dtype;
  bool bf16_dispatch = false;  // deprecated, for dispatcher_output_dtype bf16

  friend bool operator==(const LayerQuantConfig&, const LayerQuantConfig&) = default;
};

// One key as it was read: null, true or false, a number, text.
struct ConfigEntry {
  std::string key;
  std::variant<std::monostate, bool, double, std::string> value;
};

// Keys: input_global_scale (number or null), dispatcher_output_dtype (text or null; not "auto"),
// bf16_dispatch (true or false).
// Errors: kInvalidArgument (BAD_CONFIG) naming the key, for one that is unknown (with the nearest
// known one), given twice, of the wrong kind, not a dtype, a scale that is not finite and above
// zero, or bf16_dispatch beside another dtype (R10, R11).
absl::StatusOr<LayerQuantConfig> ParseLayerQuantConfig(std::span<const ConfigEntry> entries);

}  // namespace switchyard
