// Implementation of safetensors_header.h: from JSON text to unchecked tensors. Not for others.
#pragma once

#include "absl/status/status.h"

#include "model/safetensors/safetensors_header.h"

namespace switchyard::internal {

// Reads `input.json` event by event into `header`. On success every tensor has its three fields,
// file_offset is relative to the data, and all limits hold; names, sizes and tiling are unchecked.
absl::Status ReadHeaderJson(const SafetensorsHeaderInput& input, const SafetensorsLimits& limits,
                            SafetensorsHeader& header);

}  // namespace switchyard::internal
