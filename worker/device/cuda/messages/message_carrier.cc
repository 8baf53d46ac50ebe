#include "worker/device/cuda/messages/message_carrier.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {

absl::StatusOr<std::unique_ptr<MessageCarrier>> MessageCarrier::Create(int ranks, int rank,
                                                                       int device,
                                                                       const NcclOptions& options) {
  std::unique_ptr<MessageGroup> group;
  if (ranks > 1) {
    SY_ASSIGN_OR_RETURN(group, MakeNcclGroup(ranks, rank, options));
  }
  const std::uint32_t others = ((1U << ranks) - 1) & ~(1U << rank);
  return std::unique_ptr<MessageCarrier>(
      new MessageCarrier(std::move(group), others, device, options.patience));
}

MessageCarrier::MessageCarrier(std::unique_ptr<MessageGroup> group, std::uint32_t others,
                               int device, Duration first_patience)
    : group_(std::move(group)) {
  options_.group = group_.get();
  options_.others = others;
  options_.device = device;
  options_.first_patience = first_patience;
}

absl::Status MessageCarrier::Join(std::span<const std::string> keys, Duration patience,
                                  cuda::ExchangeReport* report) {
  if (group_ == nullptr) return absl::OkStatus();
  SY_RETURN_IF_ERROR(group_->Join(keys));
  options_.report = report;
  options_.patience = patience;
  options_.first_patience = std::max(patience, options_.first_patience);
  SY_ASSIGN_OR_RETURN(watch_, MessageWatch::Start(options_));
  return absl::OkStatus();
}

void MessageCarrier::Carry(const cuda::Messages& messages, const std::byte* outbox, std::byte* heap,
                           cudaStream_t stream) {
  if (group_ == nullptr) return;
  const absl::Status carried = group_->Carry(messages, outbox, heap, stream);
  if (carried.ok()) return;
  {
    const MutexLock lock(mutex_);
    failed_.Update(carried);
  }
  MessageWatch::GiveUp(options_, 0);
  watch_->Fail();
}

void MessageCarrier::Lose(int rank) {
  if (watch_ != nullptr) watch_->Lose(rank);
}

absl::Status MessageCarrier::Explain(const absl::Status& fault) const {
  const MutexLock lock(mutex_);
  if (fault.ok() || failed_.ok()) return fault;
  const auto metadata = MetadataOf(fault);
  return MakeError(fault.code(), ReasonOf(fault),
                   absl::StrCat(fault.message(), "; ", failed_.message()),
                   {metadata.begin(), metadata.end()});
}

}  // namespace switchyard
