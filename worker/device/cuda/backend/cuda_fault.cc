#include "worker/device/cuda/backend/cuda_fault.h"

#include <string>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/failure_scope.h"
#include "worker/device/cuda/backend/device_check.h"

namespace switchyard {
namespace {

bool LeavesTheDeviceWhole(cudaError_t error) {
  switch (error) {
    case cudaErrorInvalidValue:
    case cudaErrorInvalidPitchValue:
    case cudaErrorInvalidConfiguration:
    case cudaErrorLaunchOutOfResources:
    case cudaErrorNotSupported:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorHostMemoryAlreadyRegistered:
    // Captures are the engine's: what ends one ends no work of the device.
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorCapturedEvent:
      return true;
    default:
      return false;
  }
}

}  // namespace

absl::Status CudaFault::status() const {
  const MutexLock lock(mutex_);
  return why_;
}

absl::Status CudaFault::Check(cudaError_t error, absl::string_view doing) {
  if (error == cudaSuccess) return absl::OkStatus();
  if (broken()) return status();
  const std::string name = cudaGetErrorName(error);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrCat("no memory on CUDA device ", device_, " for ", doing,
                                  "; place fewer experts here"),
                     {{"device", absl::StrCat(device_)}});
  }
  if (LeavesTheDeviceWhole(error)) {
    (void)cudaGetLastError();
    return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                     absl::StrCat("CUDA device ", device_, " refused ", doing, ": ", name,
                                  "; report it with the shape of the layer"),
                     {{"device", absl::StrCat(device_)}, {"error", name}});
  }
  return Break(absl::StrCat(doing, " failed with ", name, " (", cudaGetErrorString(error), ")"));
}

absl::Status CudaFault::CheckAllocation(cudaError_t error, std::int64_t bytes, bool on_device,
                                        absl::string_view use) {
  if (error != cudaErrorMemoryAllocation || broken()) return Check(error, use);
  (void)cudaGetLastError();
  DeviceMemory memory{.needed_bytes = bytes};
  std::size_t free = 0;
  std::size_t total = 0;
  if (on_device && cudaMemGetInfo(&free, &total) == cudaSuccess) {
    memory.free_bytes = static_cast<std::int64_t>(free);
    memory.total_bytes = static_cast<std::int64_t>(total);
  }
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
      absl::StrCat("no memory on ", on_device ? "" : "the host of ", "CUDA device ", device_,
                   " for ", use, ": ", DeviceMemoryText(memory), "; place fewer experts here"),
      {{"device", absl::StrCat(device_)}, {"bytes", absl::StrCat(bytes)}});
}

absl::Status CudaFault::ReportStuck(absl::string_view doing) {
  return Break(absl::StrCat(doing, " did not end in time"));
}

absl::Status CudaFault::Break(absl::string_view what) {
  const MutexLock lock(mutex_);
  if (why_.ok()) {
    const std::string text =
        absl::StrCat("CUDA device ", device_, " is lost: ", what, "; restart its worker");
    why_ = WithScope(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, text,
                               {{"device", absl::StrCat(device_)}}),
                     FailureScope::kWorker);
    broken_.store(true, std::memory_order_release);
    if (log_ != nullptr) log_->Error("%s", text);
  }
  return why_;
}

}  // namespace switchyard
