#include "worker/device/host/host_device.h"

#include <utility>

#include "core/base/status_macros.h"
#include "worker/device/host/aligned_buffer.h"
#include "worker/device/host/host_run.h"

namespace switchyard {
namespace {

class HostBuffer final : public Buffer {
 public:
  HostBuffer(AlignedBuffer memory, MemoryKind kind)
      : Buffer(memory.data(), static_cast<std::size_t>(memory.bytes()), kind),
        memory_(std::move(memory)) {}

 private:
  AlignedBuffer memory_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Buffer>> HostDevice::Allocate(std::size_t bytes, MemoryKind kind) {
  SY_ASSIGN_OR_RETURN(AlignedBuffer memory,
                      AlignedBuffer::Allocate(static_cast<std::int64_t>(bytes)));
  return std::make_unique<HostBuffer>(std::move(memory), kind);
}

absl::StatusOr<std::unique_ptr<ExpertTable>> HostDevice::MakeTable(
    std::vector<TableEntry> entries) {
  return std::make_unique<HostTable>(std::move(entries));
}

absl::StatusOr<std::unique_ptr<Workspace>> HostDevice::MakeWorkspace(const MoeShape& shape,
                                                                     std::int64_t pairs_max) {
  {
    const MutexLock lock(mutex_);
    // Only devices that run experts need the thread; a source's device encodes and sums inside the
    // calls.
    if (compute_ == nullptr) {
      SY_ASSIGN_OR_RETURN(compute_, ComputeThread::Create());
    }
  }
  return HostWorkspace::Create(this, shape, pairs_max);
}

absl::StatusOr<std::unique_ptr<Stream>> HostDevice::MakeStream(StreamOptions options) {
  HostKernels* kernels = this;
  return std::make_unique<HostStream>(kernels, &compute_, std::move(options), limits_);
}

}  // namespace switchyard
