// Reads how a checkpoint is quantized, from three files of six families into one form.
//
//   config.json                    quantization_config, or text_config.quantization_config
//   hf_quant_config.json           ModelOpt's own file
//   quant_model_description.json   msModelSlim: a type for each tensor
//
// A family is one row of quant_families.cc. Reading is strict: a key that no reader knows may
// change what the weights mean, so it is refused; keys that only describe how the file was made are
// known and ignored. layer_quant.h applies the
// result to a layer. Immutable; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "model/quant/config/modelslim_description.h"
#include "model/quant/config/name_patterns.h"
#include "model/quant/layout/quant_layout.h"

namespace switchyard {

// Texts of the files; the latter two when the checkpoint has them.
struct QuantConfigFiles {
  std::string config_json;
  std::optional<std::string> hf_quant_config = std::nullopt;
  std::optional<std::string> quant_model_description = std::nullopt;
};

enum class KeyPresence : std::uint8_t { kAbsent, kNull, kPresent };

// Keys that choose the wire dtype and say nothing about the weights. They are passed on unchanged:
// the resolver of wire dtypes checks them.
struct DispatchKeys {
  KeyPresence input_global_scale = KeyPresence::kAbsent;
  std::optional<std::string> dispatcher_output_dtype;
  std::optional<bool> bf16_dispatch;

  friend bool operator==(const DispatchKeys&, const DispatchKeys&) = default;
};

// Modules that are stored alike. The first group that names a module applies.
struct QuantGroup {
  std::string key;            // where the group stands, for people
  bool every_linear = false;  // names every linear module that no group names otherwise
  NamePatterns targets;
  ProjectionQuant quant;
};

struct QuantConfig {
  std::string family = "none";     // row of quant_families.cc; "none": nothing is quantized
  std::vector<QuantGroup> groups;  // empty for "none" and "modelslim"
  NamePatterns excluded;           // stored in BF16, whatever the groups say
  std::optional<ModelSlimDescription> description;  // of "modelslim": in place of groups
  DispatchKeys dispatch;
  std::vector<std::string> warnings;  // whole sentences for an operator
};

// Errors: kInvalidArgument (BAD_CONFIG), metadata {key}: not JSON, a key that is unknown, mistyped
// or contradicts another, more than the limits of name_patterns.h and modelslim_description.h;
// kUnimplemented (UNSUPPORTED), metadata {key}: a well-formed scheme that is not served.
absl::StatusOr<QuantConfig> ParseQuantConfig(const QuantConfigFiles& files);

// "fp8, modelopt, ..." for error texts and tables.
std::string SupportedQuantFamilies();

}  // namespace switchyard
