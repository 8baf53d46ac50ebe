// The messages of one rank, with the bound on their waits: what a rank's exchange needs of a group
// by messages, by NCCL.
//
// A step whose messages cannot be carried goes on all the same: its kernels learn that it is no
// result, and the rank's fault says why. So no kernel is left without those that come after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include <cuda_runtime_api.h>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "worker/device/cuda/exchange/exchange_rank.h"
#include "worker/device/cuda/messages/message_group.h"
#include "worker/device/cuda/messages/message_watch.h"
#include "worker/device/cuda/messages/nccl_group.h"

namespace switchyard {

class MessageCarrier {
 public:
  // Errors: as MakeNcclGroup.
  static absl::StatusOr<std::unique_ptr<MessageCarrier>> Create(int ranks, int rank, int device,
                                                                const NcclOptions& options = {});
  // No step runs. The current device is the rank's.
  ~MessageCarrier() = default;
  MessageCarrier(const MessageCarrier&) = delete;
  MessageCarrier& operator=(const MessageCarrier&) = delete;

  [[nodiscard]] const std::string& key() const {
    return group_ == nullptr ? alone_ : group_->key();
  }
  // As MessageGroup::Join. Messages are waited for as long as `patience`, the first ones longer.
  // `report` outlives this.
  absl::Status Join(std::span<const std::string> keys, Duration patience,
                    cuda::ExchangeReport* report);
  // As MessageGroup::Carry, after Join. If it fails, the group is given up.
  void Carry(const cuda::Messages& messages, const std::byte* outbox, std::byte* heap,
             cudaStream_t stream);
  // There is evidence that the rank does not come. From any thread, after Join.
  void Lose(int rank);
  // `fault` with what made messages fail, if that is known. From any thread.
  [[nodiscard]] absl::Status Explain(const absl::Status& fault) const;

 private:
  MessageCarrier(std::unique_ptr<MessageGroup> group, std::uint32_t others, int device,
                 Duration first_patience);

  const std::string alone_ = "alone";
  const std::unique_ptr<MessageGroup> group_;  // null where there are no other ranks
  MessageWatch::Options options_;
  std::unique_ptr<MessageWatch> watch_;  // of `group_`, from Join on
  mutable Mutex mutex_;
  absl::Status failed_ SY_GUARDED_BY(mutex_);
};

}  // namespace switchyard
