// How a checkpoint stores expert weights, and which wire dtypes such experts accept.
//
// A scheme over existing codecs is one row in quant_scheme.cc. Sources of the rules: dispatch
// semantics of SGLang's DeepEP dispatcher (PRs 22822, 24906).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

#include "core/dtype.h"

namespace switchyard {

enum class QuantScheme : std::uint8_t {
  kNone = 0,  // unquantised BF16
};

struct QuantSchemeInfo {
  QuantScheme scheme;
  const char* name;                    // in configs, plans and tables
  DispatchDtype preferred;             // wire dtype when nobody asks for another
  std::vector<DispatchDtype> accepts;  // wire dtypes that the experts can consume
};

QuantSchemeInfo QuantSchemeInfoOf(QuantScheme scheme);
std::optional<QuantScheme> QuantSchemeFromName(absl::string_view name);

}  // namespace switchyard
