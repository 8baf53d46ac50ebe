// Implementation of config_reader.h and the quant config readers: JSON text to nlohmann's tree,
// within bounds. Not for others.
#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace switchyard::internal {

// Bounds before parsing: the file may come from anywhere, and the tree takes many times its bytes.
struct JsonTreeLimits {
  std::size_t bytes_max = 16U << 20U;
  std::size_t depth_max = 64;
};

// Errors: kInvalidArgument, no reason (the caller adds one): not JSON, not UTF-8, a NUL byte, a key
// twice in one object, too deep or too large. Never throws.
absl::StatusOr<nlohmann::json> ParseJsonTree(absl::string_view text,
                                             const JsonTreeLimits& limits = {});

}  // namespace switchyard::internal
