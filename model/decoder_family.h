// The model families whose decoder can be run over this service (examples/), so that more than
// their experts is read. Deploying a family needs no row here, only its experts:
// model/experts/moe_outline.h and model/experts/expert_names.h.
//
// A family is one row in decoder_family.cc and one parse function. Thread-safe.
#pragma once

#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "model/io/config_reader.h"
#include "model/model_config.h"

namespace switchyard {

struct DecoderFamily {
  const char* model_type;    // config.json's "model_type"
  const char* architecture;  // among config.json's "architectures"
  // The decoder's part of the config; everything else of `config` is set already.
  absl::StatusOr<DecoderConfig> (*parse)(const ConfigReader& reader, const ModelConfig& config);
};

std::span<const DecoderFamily> DecoderFamilies();
// nullptr when there is none of that model_type.
const DecoderFamily* FindDecoderFamily(absl::string_view model_type);

}  // namespace switchyard
