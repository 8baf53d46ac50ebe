#include "worker/device/host/host_device.h"

#include <utility>

#include "core/base/status_macros.h"
#include "worker/device/host/aligned_buffer.h"
#include "worker/device/host/exchange_heap.h"
#include "worker/device/host/exchange_rows.h"
#include "worker/device/host/host_exchange.h"
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
  SY_RETURN_IF_ERROR(StartComputing());
  return HostWorkspace::Create(this, shape, pairs_max);
}

absl::Status HostDevice::StartComputing() {
  const MutexLock lock(mutex_);
  if (compute_ == nullptr) {
    SY_ASSIGN_OR_RETURN(compute_, ComputeThread::Create());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Exchange>> HostDevice::MakeExchange(const ExchangeSpec& spec,
                                                                   std::int32_t rank) {
  SY_RETURN_IF_ERROR(CheckExchange(spec, rank));
  SY_RETURN_IF_ERROR(StartComputing());
  ExchangeRows::Parts parts{.spec = spec, .rank = rank, .kernels = this};
  SY_RETURN_IF_ERROR(MakeCodec({.format = spec.wire}).status());
  if (rank < spec.expert_ranks) {
    SY_ASSIGN_OR_RETURN(parts.workspace,
                        MakeWorkspace(spec.shape, ExchangeRows::PairsOfPass(spec)));
  }
  SY_ASSIGN_OR_RETURN(auto rows, ExchangeRows::Create(std::move(parts)));
  return HostExchange::Create(std::move(rows));
}

absl::StatusOr<std::unique_ptr<Stream>> HostDevice::MakeStream(StreamOptions options) {
  HostKernels* kernels = this;
  return std::make_unique<HostStream>(kernels, &compute_, std::move(options), limits_);
}

}  // namespace switchyard
