#include "core/capability.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace switchyard {

bool CapabilitySet::Takes(DispatchDtype dtype) const {
  return std::find(wire_dtypes.begin(), wire_dtypes.end(), dtype) != wire_dtypes.end();
}

bool CapabilitySet::Takes(QuantScheme scheme) const {
  return std::find(schemes.begin(), schemes.end(), scheme) != schemes.end();
}

std::string CapabilitySet::DebugString() const {
  const auto dtype_name = [](std::string* out, DispatchDtype dtype) {
    absl::StrAppend(out, DispatchDtypeName(dtype));
  };
  const auto scheme_name = [](std::string* out, QuantScheme scheme) {
    absl::StrAppend(out, QuantSchemeInfoOf(scheme).name);
  };
  // GDN facts and memory are left out: no decision of this service depends on the first, and the
  // second differs between equal machines.
  return absl::StrCat(DeviceKindName(device), "/", kernel_family, " wire=[",
                      absl::StrJoin(wire_dtypes, ",", dtype_name), "] schemes=[",
                      absl::StrJoin(schemes, ",", scheme_name), "] transports=[",
                      absl::StrJoin(transports, ","), "] max_top_k=", max_top_k);
}

}  // namespace switchyard
