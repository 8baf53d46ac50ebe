// Memory of a CUDA device that other processes of the host map: CUDA's interprocess handles
// (cudaIpcGetMemHandle), as any two processes on GPUs of one host can exchange them.
//
// Buffers keep nothing of the backend but its calls of the driver, so they may outlive it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "worker/device/cuda/backend/cuda_fault.h"
#include "worker/device/cuda/backend/kept_context.h"
#include "worker/device/memory.h"

namespace switchyard {

// Counts the memory that a device shares, and bounds it. Thread-safe.
class SharingBudget {
 public:
  explicit SharingBudget(std::int64_t bytes_max) : bytes_max_(bytes_max) {}
  // False, with nothing taken, if that is too much.
  bool Take(std::int64_t bytes);
  void Give(std::int64_t bytes) { held_.fetch_sub(bytes, std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t held() const { return held_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::int64_t bytes_max() const { return bytes_max_; }

 private:
  const std::int64_t bytes_max_;
  std::atomic<std::int64_t> held_{0};
};

// As the functions of DeviceBackend, for the device of that index.
absl::StatusOr<SharedBuffer> AllocateCudaShared(std::size_t bytes, int device,
                                                const std::shared_ptr<SharingBudget>& budget,
                                                const ContextCalls& contexts, CudaFault& fault);
absl::StatusOr<std::unique_ptr<Buffer>> OpenCudaShared(absl::string_view key, std::size_t bytes,
                                                       int device, const ContextCalls& contexts);

}  // namespace switchyard
