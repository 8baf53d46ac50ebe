#include "worker/device/cuda/backend/cuda_sharing.h"

#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include <cuda.h>
#include <cuda_runtime_api.h>

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// CUDA cuts small allocations from blocks of this size and shares whole blocks, so smaller ones
// would show their neighbors to the other process.
constexpr std::int64_t kBlock = std::int64_t{2} << 20;

// A key as bytes. Both processes are of one host and one release.
struct Key {
  std::uint32_t magic = kMagic;
  std::uint32_t reserved = 0;
  std::int64_t bytes = 0;
  cudaIpcMemHandle_t handle{};

  static constexpr std::uint32_t kMagic = 0x4d435953;  // "SYCM"
};
static_assert(std::is_trivially_copyable_v<Key>);

class SharedCudaBuffer final : public Buffer {
 public:
  SharedCudaBuffer(std::byte* data, std::size_t bytes, std::int64_t taken, int device,
                   std::shared_ptr<SharingBudget> budget, const ContextCalls& contexts)
      : Buffer(data, bytes, MemoryKind::kDevice),
        taken_(taken),
        device_(device),
        budget_(std::move(budget)),
        contexts_(contexts) {}
  // Fails only after a fault, when the process is about to end.
  ~SharedCudaBuffer() override {
    const KeptContext kept(contexts_);
    (void)cudaSetDevice(device_);
    (void)cudaFree(data());
    budget_->Give(taken_);
  }

 private:
  const std::int64_t taken_;
  const int device_;
  const std::shared_ptr<SharingBudget> budget_;
  const ContextCalls contexts_;
};

class OpenedCudaBuffer final : public Buffer {
 public:
  OpenedCudaBuffer(std::byte* data, std::size_t bytes, int device, const ContextCalls& contexts)
      : Buffer(data, bytes, MemoryKind::kDevice), device_(device), contexts_(contexts) {}
  ~OpenedCudaBuffer() override {
    const KeptContext kept(contexts_);
    (void)cudaSetDevice(device_);
    (void)cudaIpcCloseMemHandle(data());
  }

 private:
  const int device_;
  const ContextCalls contexts_;
};

// Bytes of the allocation that `data` begins; 0 if it does not begin one or nothing can tell.
std::size_t AllocationAt(const void* data) {
  using GetRange = CUresult (*)(CUdeviceptr*, std::size_t*, CUdeviceptr);
  constexpr unsigned kSince = 3020;  // the CUDA version that brought the symbol
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &symbol, kSince, cudaEnableDefault,
                                       &found) != cudaSuccess ||
      found != cudaDriverEntryPointSuccess) {
    (void)cudaGetLastError();
    return 0;
  }
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  const auto at = reinterpret_cast<CUdeviceptr>(data);
  if (reinterpret_cast<GetRange>(symbol)(&base, &bytes, at) != CUDA_SUCCESS || base != at) return 0;
  return bytes;
}

// Not a fault of this device: the process goes on without that memory.
absl::Status NotShared(absl::string_view doing, int device, cudaError_t error) {
  (void)cudaGetLastError();
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                   absl::StrFormat("CUDA device %d: %s: %s; containers need one IPC namespace",
                                   device, doing, cudaGetErrorName(error)));
}

absl::Status BadKey(absl::string_view what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                   absl::StrCat("the peer's key of device memory ", what));
}

}  // namespace

bool SharingBudget::Take(std::int64_t bytes) {
  std::int64_t held = held_.load(std::memory_order_relaxed);
  do {
    if (bytes > bytes_max_ - held) return false;
  } while (!held_.compare_exchange_weak(held, held + bytes, std::memory_order_relaxed));
  return true;
}

absl::StatusOr<SharedBuffer> AllocateCudaShared(std::size_t bytes, int device,
                                                const std::shared_ptr<SharingBudget>& budget,
                                                const ContextCalls& contexts, CudaFault& fault) {
  const std::int64_t taken = (static_cast<std::int64_t>(bytes) + kBlock - 1) / kBlock * kBlock;
  if (!budget->Take(taken)) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
        absl::StrFormat("CUDA device %d shares %d MiB with other processes and may share %d, which "
                        "leaves no room for %d; raise shared_mib_max of the device",
                        device, budget->held() >> 20, budget->bytes_max() >> 20, taken >> 20));
  }
  const KeptContext kept(contexts);
  void* data = nullptr;
  absl::Status allocated = fault.Check(cudaSetDevice(device), "selecting the device");
  if (allocated.ok()) {
    allocated = fault.CheckAllocation(cudaMalloc(&data, static_cast<std::size_t>(taken)), taken,
                                      /*on_device=*/true, "rows of other processes");
  }
  if (!allocated.ok()) {
    budget->Give(taken);
    return allocated;
  }
  SharedBuffer shared;
  shared.buffer = std::make_unique<SharedCudaBuffer>(static_cast<std::byte*>(data), bytes, taken,
                                                     device, budget, contexts);
  Key key{.bytes = taken};
  const cudaError_t got = cudaIpcGetMemHandle(&key.handle, data);
  if (got != cudaSuccess) return NotShared("its memory cannot be shared", device, got);
  shared.key.assign(reinterpret_cast<const char*>(&key), sizeof key);
  return shared;
}

absl::StatusOr<std::unique_ptr<Buffer>> OpenCudaShared(absl::string_view key, std::size_t bytes,
                                                       int device, const ContextCalls& contexts) {
  Key parts;
  if (key.size() != sizeof parts) return BadKey("is none of a CUDA device");
  std::memcpy(&parts, key.data(), sizeof parts);
  if (parts.magic != Key::kMagic) return BadKey("is none of a CUDA device");
  if (parts.bytes < 0 || static_cast<std::size_t>(parts.bytes) < bytes) {
    return BadKey(absl::StrCat("is of ", parts.bytes, " bytes, and ", bytes, " are needed"));
  }
  const KeptContext kept(contexts);
  void* data = nullptr;
  cudaError_t opened = cudaSetDevice(device);
  if (opened == cudaSuccess) {
    opened = cudaIpcOpenMemHandle(&data, parts.handle, cudaIpcMemLazyEnablePeerAccess);
  }
  if (opened != cudaSuccess) return NotShared("the peer's memory is out of reach", device, opened);
  auto buffer =
      std::make_unique<OpenedCudaBuffer>(static_cast<std::byte*>(data), bytes, device, contexts);
  // A store behind the end of it would end this process's work on the device.
  if (AllocationAt(data) < bytes) return BadKey("is of less memory than it says");
  return buffer;
}

}  // namespace switchyard
