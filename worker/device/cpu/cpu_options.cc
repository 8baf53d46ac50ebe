#include "worker/device/cpu/cpu_options.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {

absl::StatusOr<CpuOptions> ReadCpuOptions(const DeviceKeys& keys) {
  CpuOptions options;
  for (const auto& [key, value] : keys) {
    if (key == "kernel_family") {
      options.kernel_family = value;
      // An unknown key is refused: a misspelled one would silently have no effect.
    } else if (key != "compute_threads") {
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                       absl::StrCat("device cpu has no option '", key,
                                    "'; it has kernel_family and compute_threads"));
    } else if (!absl::SimpleAtoi(value, &options.compute_threads)) {
      return MakeError(
          absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
          absl::StrCat("device cpu: compute_threads is '", value, "', not a whole number"));
    }
  }
  return options;
}

}  // namespace switchyard
