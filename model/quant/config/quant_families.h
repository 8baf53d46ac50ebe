// Implementation of quant_config.h: one row for each family of quantized checkpoints. Not for
// others.
//
// A family recognizes its files and fills the config. The first row that recognizes them reads
// them.
#pragma once

#include <optional>
#include <span>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "model/io/json_view.h"
#include "model/quant/config/quant_config.h"

namespace switchyard::internal {

// The contents of the three files, as far as they exist.
struct QuantSources {
  std::optional<JsonView> quantization_config;  // of config.json
  std::optional<JsonView> hf_quant_config;      // the whole file
  std::optional<absl::string_view> description;
};

// One row. Rows are tried in order, so a family whose files look like another's comes first.
struct QuantFamily {
  const char* name;
  // Never fails: `read` refuses anything malformed.
  bool (*claims)(const QuantSources& sources);
  absl::Status (*read)(const QuantSources& sources, QuantConfig& config);
};

std::span<const QuantFamily> QuantFamilies();

// quantization_config.quant_method; empty when there is none or it is no string.
std::string QuantMethodOf(const QuantSources& sources);
// The keys of DispatchKeys, which any family's object may hold: for JsonView::OnlyKeys.
std::span<const char* const> DispatchKeyNames();
absl::Status ReadDispatchKeys(const JsonView& view, DispatchKeys& keys);
// One group that names every linear module.
void AddEveryLinear(const JsonView& view, const ProjectionQuant& quant, QuantConfig& config);
// modules_to_not_convert and ignored_layers into config.excluded, by components.
absl::Status ReadModulesToNotConvert(const JsonView& view, QuantConfig& config);

// The `read` functions of the rows. Errors of each: those of ParseQuantConfig.
absl::Status ReadFp8(const QuantSources& sources, QuantConfig& config);
absl::Status ReadW4Afp8(const QuantSources& sources, QuantConfig& config);
absl::Status ReadAwq(const QuantSources& sources, QuantConfig& config);
absl::Status ReadModelOpt(const QuantSources& sources, QuantConfig& config);
absl::Status ReadCompressedTensors(const QuantSources& sources, QuantConfig& config);
absl::Status ReadModelSlim(const QuantSources& sources, QuantConfig& config);

}  // namespace switchyard::internal
