#include "worker/device/cuda/backend/cuda_memory.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/device/host/aligned_buffer.h"

namespace switchyard {
namespace {

class CudaBuffer final : public Buffer {
 public:
  CudaBuffer(CudaMemory memory, std::size_t bytes, MemoryKind kind)
      : Buffer(memory.data(), bytes, kind), memory_(std::move(memory)) {}

 private:
  CudaMemory memory_;
};

class PageableBuffer final : public Buffer {
 public:
  PageableBuffer(AlignedBuffer memory, std::size_t bytes)
      : Buffer(memory.data(), bytes, MemoryKind::kHost), memory_(std::move(memory)) {}

 private:
  AlignedBuffer memory_;
};

class RegisteredMemory final : public HostMapping {
 public:
  RegisteredMemory(void* memory, int device, const ContextCalls& contexts)
      : memory_(memory), device_(device), contexts_(contexts) {}
  // Fails only after a fault, when the process is about to end.
  ~RegisteredMemory() override {
    // A thread without a device would get one here, with memory of that GPU.
    const KeptContext kept(contexts_);
    (void)cudaSetDevice(device_);
    (void)cudaHostUnregister(memory_);
  }
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

 private:
  void* const memory_;
  const int device_;
  const ContextCalls& contexts_;
};

// Even an empty buffer has an address.
std::size_t Allocated(std::int64_t bytes) {
  return static_cast<std::size_t>(std::max<std::int64_t>(bytes, 64));
}

}  // namespace

absl::StatusOr<CudaMemory> CudaMemory::OnDevice(std::int64_t bytes, CudaFault& fault,
                                                absl::string_view use) {
  const RelaxedCapture relaxed;
  void* data = nullptr;
  SY_RETURN_IF_ERROR(fault.CheckAllocation(cudaMalloc(&data, Allocated(bytes)), bytes,
                                           /*on_device=*/true, use));
  CudaMemory memory;
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  return memory;
}

absl::StatusOr<CudaMemory> CudaMemory::Pinned(std::int64_t bytes, CudaFault& fault,
                                              absl::string_view use) {
  const RelaxedCapture relaxed;
  void* data = nullptr;
  SY_RETURN_IF_ERROR(
      fault.CheckAllocation(cudaHostAlloc(&data, Allocated(bytes), cudaHostAllocPortable), bytes,
                            /*on_device=*/false, use));
  CudaMemory memory;
  memory.data_ = static_cast<std::byte*>(data);
  memory.bytes_ = bytes;
  memory.pinned_ = true;
  return memory;
}

// Fails only after a fault, when the process is about to end.
void CudaMemory::Free() {
  if (data_ == nullptr) return;
  const RelaxedCapture relaxed;
  (void)(pinned_ ? cudaFreeHost(data_) : cudaFree(data_));
  data_ = nullptr;
}

absl::StatusOr<MemoryKind> KindForCuda(const void* address, int device) {
  cudaPointerAttributes attributes = {};
  if (cudaPointerGetAttributes(&attributes, address) != cudaSuccess) {
    // The runtime knows nothing of it: it is memory of the host, or none at all.
    (void)cudaGetLastError();
    return MemoryKind::kHost;
  }
  if (attributes.type == cudaMemoryTypeManaged) return MemoryKind::kDevice;
  if (attributes.type == cudaMemoryTypeHost) return MemoryKind::kPinnedHost;
  if (attributes.type != cudaMemoryTypeDevice) return MemoryKind::kHost;
  if (attributes.device == device) return MemoryKind::kDevice;
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrCat("memory of CUDA device ", attributes.device,
                                ", and the steps here are of CUDA device ", device),
                   {{"have", absl::StrCat("cuda:", attributes.device)},
                    {"want", absl::StrCat("cuda:", device)}});
}

// A refusal says nothing about the device: memory may be registered already, or may not be pinned.
std::unique_ptr<HostMapping> MapHostForCuda(std::span<std::byte> memory, int device,
                                            const ContextCalls& contexts) {
  if (memory.empty()) return nullptr;
  const KeptContext kept(contexts);
  if (cudaSetDevice(device) != cudaSuccess ||
      cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterPortable) != cudaSuccess) {
    (void)cudaGetLastError();
    return nullptr;
  }
  auto mapping = std::make_unique<RegisteredMemory>(memory.data(), device, contexts);
  // Kernels get addresses of the host as they are.
  void* there = nullptr;
  if (cudaHostGetDevicePointer(&there, memory.data(), 0) != cudaSuccess || there != memory.data()) {
    (void)cudaGetLastError();
    return nullptr;
  }
  return mapping;
}

absl::StatusOr<std::unique_ptr<Buffer>> AllocateCudaBuffer(std::size_t bytes, MemoryKind kind,
                                                           CudaFault& fault) {
  // One byte more: no two buffers are neighbors, so that pieces of a copy that are lie in one.
  const auto size = static_cast<std::int64_t>(bytes) + 1;
  if (kind == MemoryKind::kHost) {
    SY_ASSIGN_OR_RETURN(AlignedBuffer memory, AlignedBuffer::Allocate(size));
    return std::make_unique<PageableBuffer>(std::move(memory), bytes);
  }
  SY_ASSIGN_OR_RETURN(CudaMemory memory, kind == MemoryKind::kDevice
                                             ? CudaMemory::OnDevice(size, fault, "a buffer")
                                             : CudaMemory::Pinned(size, fault, "a pinned buffer"));
  return std::make_unique<CudaBuffer>(std::move(memory), bytes, kind);
}

}  // namespace switchyard
