// Memory of one CUDA device and pinned memory of the host.
//
// Owners free what they hold, on any thread. Plain allocations: the device never pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "worker/device/cuda/backend/cuda_fault.h"
#include "worker/device/cuda/backend/kept_context.h"
#include "worker/device/memory.h"

namespace switchyard {

// One cudaMalloc or cudaHostAlloc; move-only. Contents are undefined.
class CudaMemory {
 public:
  // The memory is of the current device. `use` says what it is for. Errors: kResourceExhausted
  // (OUT_OF_MEMORY); the fault.
  static absl::StatusOr<CudaMemory> OnDevice(std::int64_t bytes, CudaFault& fault,
                                             absl::string_view use);
  // Host memory that every device maps at the same address.
  static absl::StatusOr<CudaMemory> Pinned(std::int64_t bytes, CudaFault& fault,
                                           absl::string_view use);

  CudaMemory() = default;
  ~CudaMemory() { Free(); }
  CudaMemory(CudaMemory&& other) noexcept { Swap(other); }
  CudaMemory& operator=(CudaMemory&& other) noexcept {
    Swap(other);
    return *this;
  }
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  void Free();
  void Swap(CudaMemory& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(pinned_, other.pinned_);
  }

  std::byte* data_ = nullptr;
  std::int64_t bytes_ = 0;
  bool pinned_ = false;
};

// As DeviceBackend::KindAt, for the device of that index. Managed memory counts as device memory.
absl::StatusOr<MemoryKind> KindForCuda(const void* address, int device);

// As DeviceBackend::MapHost, for the device of that index. `contexts` outlives the mapping.
std::unique_ptr<HostMapping> MapHostForCuda(std::span<std::byte> memory, int device,
                                            const ContextCalls& contexts);

// Errors: as DeviceBackend::Allocate.
absl::StatusOr<std::unique_ptr<Buffer>> AllocateCudaBuffer(std::size_t bytes, MemoryKind kind,
                                                           CudaFault& fault);

}  // namespace switchyard
