// The devices that the conformance suite runs over, by name: each kernel family of the CPU, and the
// late device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/kernel_families.h"
#include "tests/testing/late_device.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/machine/cpuid.h"

namespace switchyard::testing {

inline constexpr const char* kLateDevice = "late";

inline std::vector<std::string> ConformanceDevices() {
  std::vector<std::string> names = FamilyNames();
  names.emplace_back(kLateDevice);
  return names;
}

// The kernel family behind a device of that name.
inline std::string FamilyOf(const std::string& name) {
  return name == kLateDevice ? "portable_fp32" : name;
}

inline bool RunsHere(const std::string& name) {
  return FindKernelFamily(FamilyOf(name))->usable(DetectCpuFeatures());
}

inline absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeConformanceDevice(const std::string& name,
                                                                            int threads) {
  if (name == kLateDevice) {
    return LateDevice::Create({.host_access = true, .late_max = std::chrono::microseconds(50)});
  }
  return CpuBackend::Create({.kernel_family = name, .compute_threads = threads});
}

}  // namespace switchyard::testing
