#include "core/quant_scheme.h"

namespace switchyard {
namespace {

std::vector<QuantSchemeInfo> Table() {
  return {
      {QuantScheme::kNone, "none", DispatchDtype::kBf16, {DispatchDtype::kBf16}},
  };
}

}  // namespace

QuantSchemeInfo QuantSchemeInfoOf(QuantScheme scheme) {
  return Table()[static_cast<std::size_t>(scheme)];
}

std::optional<QuantScheme> QuantSchemeFromName(absl::string_view name) {
  for (const QuantSchemeInfo& row : Table()) {
    if (name == row.name) return row.scheme;
  }
  return std::nullopt;
}

}  // namespace switchyard
