// Options of the cuda device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "core/base/log.h"
#include "worker/device/device_keys.h"

namespace switchyard {

struct CudaOptions {
  // Key index: of the GPU, as the CUDA runtime counts those that the process may see.
  int index = 0;
  // Key busy_poll_us: how long the thread that looks after events goes on looking after the last
  // one, instead of sleeping. Saves wake-ups and takes a CPU meanwhile; at most 1,000,000.
  Duration busy_poll{};
  // Key source_kib_min, in KiB: DeviceBackend::source_bytes_min; at most 2,147,483,647. By default
  // where the device's encoding and sums pass a CPU's if it is not shared with workers. With a
  // worker's process on the same GPU, whose kernels take turns with these, 2048 is better.
  std::size_t source_bytes_min = std::size_t{512} << 10;
  // Key shared_mib_max, in MiB: how much memory DeviceBackend::AllocateShared gives out in all; 0:
  // none, so that rows travel through memory of the host.
  std::int64_t shared_bytes_max = std::int64_t{1024} << 20;
  // Key portable, 0 or 1: whether to use only the kernels that run on every GPU, as a GPU that is
  // not Hopper does anyway. Slower, and its groups exchange no rows; for tests and for comparing.
  bool portable = false;
  // Gets a warning for each part that failed its self-test, and an error when the GPU is lost. May
  // be null; outlives the device.
  Logger* log = nullptr;
};

// Errors: kInvalidArgument (BAD_CONFIG) for another key, an index that is none and a time that is
// none.
absl::StatusOr<CudaOptions> ReadCudaOptions(const DeviceKeys& keys);

}  // namespace switchyard
