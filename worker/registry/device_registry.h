// The devices of this build, by name. A device is a folder and a line in registry.cc.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/log.h"
#include "worker/device/device_backend.h"

namespace switchyard {

struct DeviceOptions {
  // "" picks the best family that this machine has and whose self-test passes. Results are
  // bit-equal within one family only, so a pool of unlike machines names one.
  std::string kernel_family{};
  // Threads that share one Run, the caller's included: 1 to 256. They do not change any bit.
  int compute_threads = 1;
  // Told of a family that failed its self-test. May be null; must outlive the backend.
  Logger* log = nullptr;
};

// Makes device `kind` ("cpu") and runs its self-test; takes some milliseconds.
//
// Errors: kUnimplemented (UNSUPPORTED) listing what exists, for a kind that this build lacks or a
// kernel family that this CPU lacks; kInvalidArgument (BAD_CONFIG) for compute_threads out of
// range; kInternal (INTERNAL) when no family passes its self-test.
absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeDevice(absl::string_view kind,
                                                          const DeviceOptions& options);

}  // namespace switchyard
