#include "worker/registry/device_registry.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/device_keys.h"

namespace switchyard {

std::string DeviceKinds() { return "cpu"; }

absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeDevice(absl::string_view spec, Logger* log) {
  // Only the first ':' separates: values may contain one.
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(spec, absl::MaxSplits(':', 1));
  SY_ASSIGN_OR_RETURN(const DeviceKeys keys, ReadDeviceKeys(parts.second));
  if (parts.first == "cpu") {
    SY_ASSIGN_OR_RETURN(CpuOptions options, ReadCpuOptions(keys));
    // Not a key: a command line cannot name a logger.
    options.log = log;
    return CpuBackend::Create(options);
  }
  return MakeError(
      absl::StatusCode::kUnimplemented, Reason::kUnsupported,
      absl::StrCat("no device '", parts.first, "' in this build; it has: ", DeviceKinds()),
      {{"want", std::string(parts.first)}, {"have", DeviceKinds()}});
}

}  // namespace switchyard
