// The schemes that can be written: a row for each spelling of a quant scheme on disk.
//
// A row has the name of its layout (quant_layout.h) where the layout has only one spelling, and a
// name that distinguishes the spellings where it has several. Constant data; thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/projection.h"
#include "model/quant/layout/quant_layout.h"

namespace switchyard {

// The file and the form in which a checkpoint describes its quantization.
enum class QuantConfigForm : std::uint8_t {
  kFp8,                // config.json, quant_method "fp8"
  kCompressedTensors,  // config.json, quant_method "compressed-tensors"
  kModelOptFlat,       // config.json, quant_method "modelopt"
  kModelOptFile,       // hf_quant_config.json; config.json unchanged
  kW4Afp8,             // config.json, quant_method "w4afp8"
  kModelSlim,          // quant_model_description.json; config.json unchanged
  kAwq,                // config.json, quant_method "awq"
};

struct WriteScheme {
  const char* name;         // of --scheme; never changes
  const char* description;  // for people
  QuantConfigForm form;
  ProjectionQuant gate_up;
  ProjectionQuant down;  // the same, except for W4A4, whose down is INT8

  [[nodiscard]] const ProjectionQuant& of(Projection projection) const {
    return projection == Projection::kDown ? down : gate_up;
  }
  [[nodiscard]] QuantScheme scheme() const { return SchemeOf(gate_up); }
  [[nodiscard]] bool needs_calibration() const { return gate_up.static_inputs; }
  [[nodiscard]] int weight_bits() const;  // of gate and up: 8 or 4
};

// The first row of a QuantScheme is the one that its bare name stands for.
std::span<const WriteScheme> WriteSchemes();

// `name`: of a row, or of a QuantScheme ("nvfp4"); `layout`: "" or the name of a row or of a
// QuantLayout, which picks among the rows of that scheme.
// Errors: kInvalidArgument (BAD_CONFIG), metadata {scheme}: no such row, with the nearest name.
absl::StatusOr<const WriteScheme*> FindWriteScheme(absl::string_view name,
                                                   absl::string_view layout = "");

// kInvalidArgument (BAD_CONFIG), metadata {key}: "--calibrate: ...".
absl::Status BadOption(absl::string_view option, absl::string_view what);

// Sizes of an MoE layer: gate and up are [intermediate, hidden], down is [hidden, intermediate].
struct LayerSizes {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;

  [[nodiscard]] ProjectionSize of(Projection projection) const;
};

// Errors: kInvalidArgument (BAD_CONFIG), metadata {key, scheme, tensor}: sizes that the layout
// cannot hold, naming layout, `module` (of which a tensor stands for all), and the nearest row that
// fits.
absl::Status CheckSizes(const WriteScheme& scheme, Projection projection, const LayerSizes& sizes,
                        absl::string_view module);

}  // namespace switchyard
