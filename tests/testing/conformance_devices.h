// The devices that the conformance suite runs over, by name: each kernel family of the CPU, the
// late device, and the GPU in builds that have it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/testing/kernel_families.h"
#include "tests/testing/late_device.h"
#include "worker/device/cpu/cpu_backend.h"
#include "worker/device/cpu/kernel/kernels.h"
#include "worker/device/cpu/machine/cpuid.h"
#include "worker/registry/device_registry.h"

namespace switchyard::testing {

inline constexpr const char* kLateDevice = "late";
inline constexpr const char* kCudaDevice = "cuda";

inline std::vector<std::string> ConformanceDevices() {
  std::vector<std::string> names = FamilyNames();
  names.emplace_back(kLateDevice);
#ifdef SY_WITH_CUDA
  names.emplace_back(kCudaDevice);
#endif
  return names;
}

// The kernel family behind a device of that name, and its profile.
inline std::string FamilyOf(const std::string& name) {
  if (name == kCudaDevice) return "cuda_sm90";
  return name == kLateDevice ? "portable_fp32" : name;
}
inline std::string ProfileOf(const std::string& name) {
  return name == kCudaDevice ? "cuda_sm90" : "cpu";
}
// Families that keep h in BF16 lose its last bits as well as those of their sums.
inline bool KeepsMiddleInBf16(const std::string& name) {
  return name == "amx_bf16" || name == kCudaDevice;
}

// Why a device of that name cannot be made here; empty: it can.
inline std::string WhyNotHere(const std::string& name) {
  if (name == kCudaDevice) {
    const absl::Status made = MakeDevice(kCudaDevice).status();
    return absl::IsFailedPrecondition(made) ? std::string(made.message()) : "";
  }
  if (FindKernelFamily(FamilyOf(name))->usable(DetectCpuFeatures())) return "";
  return "this CPU cannot run kernel family " + name;
}

inline absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeConformanceDevice(const std::string& name,
                                                                            int threads) {
  if (name == kCudaDevice) return MakeDevice(kCudaDevice);
  if (name == kLateDevice) {
    return LateDevice::Create({.late_max = std::chrono::microseconds(50)});
  }
  return CpuBackend::Create({.kernel_family = name, .compute_threads = threads});
}

}  // namespace switchyard::testing
