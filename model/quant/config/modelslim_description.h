// quant_model_description.json of msModelSlim: the type of every tensor of the checkpoint.
//
//   {"model_quant_type": "W4A8_DYNAMIC", "group_size": 0,
//    "model.layers.3.mlp.experts.0.gate_proj.weight": "W4A8_DYNAMIC",
//    "model.layers.3.mlp.experts.0.gate_proj.weight_scale": "W4A8_DYNAMIC", ...}
//
// A model of 60 layers with 384 experts has 400,000 rows, so the file is read event by event and
// only the types of weights are kept. Immutable; thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "model/quant/layout/quant_layout.h"

namespace switchyard {

// The words for the layouts of experts in the file. "FLOAT" is BF16.
struct ModelSlimType {
  const char* name;
  QuantLayout layout;
};
inline constexpr std::array<ModelSlimType, 4> kModelSlimTypes{{
    {"FLOAT", QuantLayout::kBf16},
    {"W8A8_DYNAMIC", QuantLayout::kModelSlimW8A8},
    {"W4A8_DYNAMIC", QuantLayout::kModelSlimW4A8},
    {"W4A4_DYNAMIC", QuantLayout::kModelSlimW4A4},
}};

// Far above real files; beyond them the file is refused before its names are stored.
struct ModelSlimLimits {
  std::size_t file_bytes_max = std::size_t{256} << 20U;
  std::size_t modules_max = 2'000'000;
  std::size_t types_max = 64;  // different ones
  std::size_t name_bytes_max = 1'024;
  std::size_t depth_max = 16;
};

class ModelSlimDescription {
 public:
  // Errors: kInvalidArgument (BAD_CONFIG), metadata {key}: not JSON, not one object, a weight twice
  // or with a type that is not a string, a group_size that is not a whole number in [0, 65536], or
  // more than the limits. Memory: the names of the weights, once.
  static absl::StatusOr<ModelSlimDescription> Parse(absl::string_view text,
                                                    const ModelSlimLimits& limits = {});

  // The type of "<module>.weight": "W8A8_DYNAMIC", "FLOAT" ...; nullptr when it has no row.
  [[nodiscard]] const std::string* TypeOf(absl::string_view module) const;
  // Values of K in a group of W4A8 weights; 0: a scale for each row. Without
  // the key it is 256 when the file lists second scales, as vLLM-Ascend assumes, else 0.
  [[nodiscard]] std::int32_t group_size() const;
  // The number of weights with a type.
  [[nodiscard]] std::size_t modules() const { return modules_.size(); }

 private:
  friend class ModelSlimHandler;
  struct Module {
    std::string name;
    std::uint8_t type = 0;  // index of types_
  };

  std::vector<Module> modules_;  // ascending by name
  std::vector<std::string> types_;
  std::optional<std::int32_t> group_size_;
  bool second_scales_ = false;
};

}  // namespace switchyard
