// The devices that the conformance suites of the device seam run over: each kernel family of the
// CPU, the late device, and the GPU in builds that have it. A new device is one row of
// ConformanceDevices.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "tests/testing/late_device.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/machine/cpuid.h"
#include "worker/registry/device_registry.h"

namespace switchyard::testing {

struct ConformanceDevice {
  std::string name;     // part of the tests' names: letters, digits and underscores
  std::string family;   // the kernel family that it has to report
  std::string profile;  // and its row of core/device_profile.cc
  // True where h is rounded to BF16, which loses its last bits as well as those of the sums.
  bool middle_in_bf16 = false;
  // Why this machine cannot run it; empty: it can.
  std::function<std::string()> why_not_here;
  std::function<absl::StatusOr<std::unique_ptr<DeviceBackend>>(int threads)> make;
};
inline void PrintTo(const ConformanceDevice& device, std::ostream* out) { *out << device.name; }

inline std::string WhyNoFamily(const KernelFamily& family) {
  if (family.usable(DetectCpuFeatures())) return "";
  return std::string("this CPU cannot run kernel family ") + family.name;
}

inline std::vector<ConformanceDevice> ConformanceDevices() {
  std::vector<ConformanceDevice> devices;
  for (const KernelFamily* family : KernelFamilies()) {
    const std::string name = family->name;
    devices.push_back({.name = name,
                       .family = name,
                       .profile = "cpu",
                       .middle_in_bf16 = name == "amx_bf16",
                       .why_not_here = [family] { return WhyNoFamily(*family); },
                       .make =
                           [name](int threads) {
                             return CpuBackend::Create(
                                 {.kernel_family = name, .compute_threads = threads});
                           }});
  }
  devices.push_back({.name = "late",
                     .family = "portable_fp32",
                     .profile = "cpu",
                     .why_not_here = [] { return std::string(); },
                     .make =
                         [](int /*threads*/) {
                           return LateDevice::Create({.late_max = std::chrono::microseconds(50)});
                         }});
#ifdef SY_WITH_CUDA
  const std::pair<const char*, const char*> gpus[] = {{"cuda", "cuda_sm90"},
                                                      {"cuda:portable=1", "cuda_sm90_portable"}};
  for (const auto& [spec, family] : gpus) {
    devices.push_back({.name = family,
                       .family = family,
                       .profile = "cuda_sm90",
                       .middle_in_bf16 = true,
                       .why_not_here =
                           [spec = spec] {
                             const absl::Status made = MakeDevice(spec).status();
                             return absl::IsFailedPrecondition(made) ? std::string(made.message())
                                                                     : std::string();
                           },
                       .make = [spec = spec](int /*threads*/) { return MakeDevice(spec); }});
  }
#endif
  return devices;
}

}  // namespace switchyard::testing
