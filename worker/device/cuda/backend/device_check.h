// Whether this process can use a GPU, and the words that say why not.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace switchyard {

// Whether the process may use GPU `index` and the kernels are for it. Does not create a context.
// Errors: kFailedPrecondition (UNSUPPORTED) with the versions of driver and runtime, the number of
// GPUs or the GPU's generation, whichever is wrong.
absl::Status CheckDevice(int index);

// The major number of the compute capability of Hopper, which alone has all kernels of this build.
inline constexpr int kHopper = 9;

// The major number of the compute capability of GPU `index`, which CheckDevice has accepted.
int CapabilityMajor(int index);
// Says whether some kernels of this build run there: those of Hopper, or the portable ones.
bool HasKernelsFor(int capability_major);

// "this build has CUDA 13.0, and no driver is loaded", from versions as the runtime gives them:
// 1000 times the major one and 10 times the minor one; 0 for a driver that is not there.
std::string CudaVersionsText(int runtime, int driver);

// "18874368 bytes are needed, and 1024 of 150754820096 are free".
struct DeviceMemory {
  std::int64_t needed_bytes = 0;
  std::int64_t free_bytes = -1;  // below 0: unknown
  std::int64_t total_bytes = 0;
};
std::string DeviceMemoryText(const DeviceMemory& memory);

}  // namespace switchyard
