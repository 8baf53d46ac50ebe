#include "worker/registry/device_registry.h"

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard {

absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeDevice(absl::string_view kind,
                                                          const DeviceOptions& options) {
  if (kind == "cpu") {
    return CpuBackend::Create({.kernel_family = options.kernel_family,
                               .compute_threads = options.compute_threads,
                               .log = options.log});
  }
  return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                   absl::StrCat("no device '", kind, "' in this build; it has: cpu"),
                   {{"want", absl::StrCat(kind)}, {"have", "cpu"}});
}

}  // namespace switchyard
