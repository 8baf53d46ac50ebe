// Options of the cuda device.
#pragma once

#include "absl/status/statusor.h"

#include "core/base/log.h"
#include "worker/device/device_keys.h"

namespace switchyard {

struct CudaOptions {
  // Key index: of the GPU, as the CUDA runtime counts those that the process may see.
  int index = 0;
  // Gets a warning for each part that failed its self-test, and an error when the GPU is lost. May
  // be null; outlives the device.
  Logger* log = nullptr;
};

// Errors: kInvalidArgument (BAD_CONFIG) for another key, and for an index that is none.
absl::StatusOr<CudaOptions> ReadCudaOptions(const DeviceKeys& keys);

}  // namespace switchyard
