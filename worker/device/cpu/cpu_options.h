// The options of the cpu device, as a program's --device flag spells them.
#pragma once

#include <string>

#include "absl/status/statusor.h"

#include "core/base/log.h"
#include "worker/device/device_keys.h"
#include "worker/device/host/host_stream.h"

namespace switchyard {

struct CpuOptions {
  // Key kernel_family. "" picks the best family that this machine has and whose self-test passes.
  // Results are bit-equal within one family only, so a pool of unlike machines names one.
  std::string kernel_family{};
  // Key compute_threads: that share one run, 1 to 256. They do not change any bit.
  int compute_threads = 1;
  // Not a key: which runs are performed inside the call that enqueues them.
  InlineLimits inline_limits{};
  // Gets a warning for each part that failed its self-test. May be null; outlives the device.
  Logger* log = nullptr;
};

// Errors: kInvalidArgument (BAD_CONFIG) for another key, and for a number of threads that is none.
absl::StatusOr<CpuOptions> ReadCpuOptions(const DeviceKeys& keys);

}  // namespace switchyard
