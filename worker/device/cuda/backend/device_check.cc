#include "worker/device/cuda/backend/device_check.h"

#include "absl/strings/str_cat.h"
#include <cuda_runtime_api.h>

#include "core/base/error.h"

namespace switchyard {
namespace {

absl::Status NoDevice(int index, const std::string& why) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                   absl::StrCat("device cuda: ", why, "; choose another device or machine"),
                   {{"want", absl::StrCat("cuda:index=", index)}});
}

std::string VersionText(int version) {
  return absl::StrCat("CUDA ", version / 1000, ".", version % 1000 / 10);
}

}  // namespace

std::string CudaVersionsText(int runtime, int driver) {
  return absl::StrCat("this build has ", VersionText(runtime), ", and ",
                      driver == 0 ? std::string("no driver is loaded")
                                  : absl::StrCat("the driver is for ", VersionText(driver)));
}

std::string DeviceMemoryText(const DeviceMemory& memory) {
  std::string text = absl::StrCat(memory.needed_bytes, " bytes are needed");
  if (memory.free_bytes >= 0) {
    absl::StrAppend(&text, ", and ", memory.free_bytes, " of ", memory.total_bytes, " are free");
  }
  return text;
}

absl::Status CheckDevice(int index) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) {
    // Both calls answer without a driver.
    int runtime = 0;
    int driver = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    return NoDevice(index, absl::StrCat("no usable GPU: ", cudaGetErrorString(counted), " (",
                                        CudaVersionsText(runtime, driver), ")"));
  }
  if (index >= count) {
    return NoDevice(index,
                    absl::StrCat("this process sees ", count, " GPUs, so none of index ", index));
  }
  int major = 0;
  const cudaError_t asked =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
  if (asked != cudaSuccess) {
    return NoDevice(index, absl::StrCat("GPU ", index, ": ", cudaGetErrorString(asked)));
  }
  if (!HasKernelsFor(major)) {
    return NoDevice(index, absl::StrCat("GPU ", index, " has compute capability ", major,
                                        ".x, and the kernels of this build are for 9.0, and for "
                                        "10.0 and later"));
  }
  return absl::OkStatus();
}

int CapabilityMajor(int index) {
  int major = 0;
  (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index);
  return major;
}

// The portable kernels are there for 10.0 as PTX too, which drivers compile for what comes later.
bool HasKernelsFor(int capability_major) { return capability_major >= kHopper; }

}  // namespace switchyard
