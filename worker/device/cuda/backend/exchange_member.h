// One rank of a group of GPUs that exchange rows by their own stores (worker/device/cuda/exchange):
// its heap, which the other ranks' processes map, and what its kernels need beside it. With
// messages (ExchangeShape::by_messages) nobody maps it, and there is an outbox instead.
//
//   Create -> key ... the keys of all ranks, by whatever carries them -> Join -> rank(), rows()
//
// A thread at a time. Everything is freed by the destructor, which waits for the device: no kernel
// of the group may run. Others that still write into the heap then reach what they have mapped, and
// nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "worker/device/cuda/exchange/exchange_rank.h"
#include "worker/device/device_backend.h"

namespace switchyard {

class ExchangeMember {
 public:
  // Takes memory that is ready for the others to write into when this returns. `device` is a CUDA
  // device and outlives the member. Errors: kInvalidArgument (BAD_SHAPE) for a shape without
  // kernels or a rank that it does not have; those of AllocateShared and Allocate.
  static absl::StatusOr<std::unique_ptr<ExchangeMember>> Create(DeviceBackend* device,
                                                                const cuda::ExchangeShape& shape,
                                                                int rank);
  ExchangeMember(const ExchangeMember&) = delete;
  ExchangeMember& operator=(const ExchangeMember&) = delete;

  // For the other ranks' Join; never logged.
  [[nodiscard]] const std::string& key() const { return heap_.key; }
  // Maps the heaps of all ranks: `keys` by rank; with messages, any. Once. A kernel waits for
  // another rank for at most `patience`, or 36 minutes. Errors: kInvalidArgument (BAD_REQUEST) for
  // another number of keys; those of OpenShared, with the rank.
  absl::Status Join(std::span<const std::string> keys, Duration patience);

  // REQUIRES: Join has succeeded.
  [[nodiscard]] const cuda::ExchangeRank& rank() const { return rank_; }
  // Messages are of the outbox, and are put into the heap.
  [[nodiscard]] const std::byte* outbox() const { return outbox_->data(); }
  [[nodiscard]] std::byte* heap() const { return heap_.buffer->data(); }
  // The kernels tell the host by it, and whoever carries messages tells them.
  [[nodiscard]] cuda::ExchangeReport& report() const { return *rank_.report; }
  // Lists of one step at a time.
  [[nodiscard]] const cuda::ExchangeRows& rows() const { return rows_; }
  [[nodiscard]] int slots_max() const { return cuda::ExchangeSlotsMax(rank_.shape); }
  // Before steps are enqueued, or run from a graph. Errors: kUnavailable (NOT_READY) for more than
  // `most` in all.
  absl::Status CountSteps(std::uint64_t steps = 1, std::uint64_t most = cuda::kExchangeStepsMax);
  // As Exchange::CheckIds.
  [[nodiscard]] absl::Status CheckIds(std::uint64_t step, std::int32_t first_row) const;
  // As Exchange::Lose.
  void Lose(int rank);
  // OK if the steps so far are results; else why the first of the others is none: kUnavailable
  // (WORKER_LOST) for a rank that did not come, kFailedPrecondition (BAD_CONFIG) for one that meant
  // another step, both with rank and step. Costs a read of the host's
  // memory; what has ended on the device is seen.
  [[nodiscard]] absl::Status Fault() const;

 private:
  ExchangeMember() = default;
  absl::Status Allocate(DeviceBackend* device);
  absl::Status AllocateHeap(DeviceBackend* device, std::int64_t bytes);
  // Maps the heap of another rank.
  absl::Status Open(int rank, const std::string& key);

  DeviceBackend* device_ = nullptr;
  SharedBuffer heap_;
  std::vector<std::unique_ptr<Buffer>> heaps_;  // of other ranks
  std::unique_ptr<Buffer> outbox_;              // null without messages
  bool joined_ = false;
  std::unique_ptr<Buffer> state_;
  std::unique_ptr<Buffer> report_;  // pinned memory of the host
  std::unique_ptr<Buffer> lists_;
  cuda::ExchangeRank rank_;
  cuda::ExchangeRows rows_;
  std::uint64_t steps_ = 0;  // counted
};

}  // namespace switchyard
