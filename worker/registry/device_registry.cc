#include "worker/registry/device_registry.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/device_keys.h"
#ifdef SY_WITH_CUDA
#include "worker/device/cuda/backend/cuda_backend.h"
#endif

namespace switchyard {
namespace {

#ifdef SY_WITH_CUDA
constexpr char kKinds[] = "cpu, cuda";

// "1" is short for "index=1".
std::string LongForm(absl::string_view keys) {
  const bool is_index = !keys.empty() && std::all_of(keys.begin(), keys.end(), absl::ascii_isdigit);
  return absl::StrCat(is_index ? "index=" : "", keys);
}

absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeCuda(absl::string_view text, Logger* log) {
  SY_ASSIGN_OR_RETURN(const DeviceKeys keys, ReadDeviceKeys(LongForm(text)));
  SY_ASSIGN_OR_RETURN(CudaOptions options, ReadCudaOptions(keys));
  options.log = log;
  return CudaBackend::Create(options);
}
#else
constexpr char kKinds[] = "cpu";

absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeCuda(absl::string_view /*text*/,
                                                        Logger* /*log*/) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                   absl::StrCat("this build has no CUDA device; configure it with ",
                                "-DSWITCHYARD_CUDA=ON, or choose one of: ", kKinds),
                   {{"want", "cuda"}, {"have", kKinds}});
}
#endif

absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeCpu(absl::string_view text, Logger* log) {
  SY_ASSIGN_OR_RETURN(const DeviceKeys keys, ReadDeviceKeys(text));
  SY_ASSIGN_OR_RETURN(CpuOptions options, ReadCpuOptions(keys));
  options.log = log;
  return CpuBackend::Create(options);
}

}  // namespace

std::string DeviceKinds() { return kKinds; }

absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeDevice(absl::string_view spec, Logger* log) {
  // Only the first ':' separates: values may contain one.
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(spec, absl::MaxSplits(':', 1));
  if (parts.first == "cpu") return MakeCpu(parts.second, log);
  if (parts.first == "cuda") return MakeCuda(parts.second, log);
  return MakeError(
      absl::StatusCode::kUnimplemented, Reason::kUnsupported,
      absl::StrCat("no device '", parts.first, "' in this build; it has: ", DeviceKinds()),
      {{"want", std::string(parts.first)}, {"have", DeviceKinds()}});
}

}  // namespace switchyard
