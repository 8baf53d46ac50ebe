// A CPU device whose experts are the identity: Run copies each row. What is left of a step is the
// path of the data.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"

#include "worker/device/device_backend.h"

namespace switchyard::bench {

// `busy_ns` counts the time in runs; outlives the device.
absl::StatusOr<std::unique_ptr<DeviceBackend>> MakeCopyDevice(std::atomic<std::int64_t>* busy_ns);

}  // namespace switchyard::bench
