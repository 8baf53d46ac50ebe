// The devices of this build, by name. A device is a folder below worker/device and a branch of
// MakeDevice; docs/EXTENDING.md lists what else it takes.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/log.h"
#include "worker/device/device_backend.h"

namespace switchyard {

// The device of programs that are given no other.
inline constexpr char kDefaultDevice[] = "cpu";

// The kinds of this build, for help texts: "cpu", "cpu, cuda".
std::string DeviceKinds();

// Makes the device that `spec` names and runs its self-test; takes some milliseconds.
//
// A spec is KIND or KIND:KEY=VALUE[,KEY=VALUE...], such as "cpu" or
// "cpu:kernel_family=portable_fp32,compute_threads=2" or "cuda:index=1", for which "cuda:1" is
// short. Each implementation owns its keys (cpu: worker/device/cpu/cpu_options.h, cuda:
// worker/device/cuda/backend/cuda_options.h). `log` gets a warning for each part that failed its
// self-test; it may be null and outlives the device.
//
// Errors: kUnimplemented (UNSUPPORTED) listing what exists, for a kind that nobody has and for what
// this machine lacks; kFailedPrecondition (UNSUPPORTED) for cuda in a build without it or on a
// machine without a usable GPU; kInvalidArgument (BAD_CONFIG) for a spec that cannot be read, a key
// that the device does not have or a value out of range; kInternal (INTERNAL) when nothing of the
// device passes its self-test.
absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeDevice(absl::string_view spec,
                                                          Logger* log = nullptr);

}  // namespace switchyard
