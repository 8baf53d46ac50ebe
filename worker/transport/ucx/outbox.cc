#include "worker/transport/ucx/outbox.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/status_macros.h"
#include "worker/transport/shared_stores.h"

namespace switchyard {
namespace {

// UCS_ERR_NO_RESOURCE if UCX cannot complete the send immediately.
// Immediate completion keeps UCX from referring to our memory after the call.
ucs_status_t SendNow(ucp_ep_h endpoint, std::span<const std::byte> header,
                     std::span<const std::byte> data) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoint, kFrameMessageId, header.data(), header.size(),
                      data.empty() ? nullptr : data.data(), data.size(), &param);
  return UCS_PTR_STATUS(request);
}

}  // namespace

ucs_status_t SendGreeting(ucp_ep_h endpoint, const GreetingBytes& greeting) {
  return SendNow(endpoint, greeting, {});
}

UcxOutbox::UcxOutbox(const RingShape& shape, std::span<std::byte> memory, bool mapped)
    : shape_(shape), mapped_(mapped), memory_(memory), entries_(shape.slots) {}

std::span<std::byte> UcxOutbox::Slot(std::uint32_t slot) const {
  return memory_.subspan(static_cast<std::size_t>(slot) * shape_.slot_bytes, shape_.slot_bytes);
}

void UcxOutbox::Queue(std::uint32_t slot, std::size_t frame_bytes) {
  // The rows must be visible in the peer's ring before the doorbell is sent.
  if (mapped_) PublishStores();
  Entry& entry = entries_[slot];
  entry.frame_bytes = frame_bytes;
  // A slot that is queued again starts from its first piece: its content has changed.
  entry.sent_bytes = 0;
  if (entry.queued) return;
  entry.queued = true;
  entry.next = kNone;
  (tail_ == kNone ? head_ : entries_[tail_].next) = slot;
  tail_ = slot;
}

void UcxOutbox::Pop() {
  Entry& entry = entries_[head_];
  entry.queued = false;
  head_ = entry.next;
  if (head_ == kNone) tail_ = kNone;
}

ucs_status_t UcxOutbox::SendOne(ucp_ep_h endpoint, std::uint32_t slot, Entry* entry) const {
  const std::span<const std::byte> frame = Slot(slot).first(entry->frame_bytes);
  const std::span<const std::byte> header = frame.first(kFrameHeaderBytes);
  if (mapped_) return SendNow(endpoint, header, {});

  const std::span<const std::byte> payload = frame.subspan(kFrameHeaderBytes);
  const std::size_t piece_bytes = std::min(kPieceBytes, payload.size() - entry->sent_bytes);
  std::array<std::byte, kPieceHeaderBytes> piece_header{};
  std::memcpy(piece_header.data(), header.data(), header.size());
  const auto offset = static_cast<std::uint32_t>(entry->sent_bytes);
  std::memcpy(piece_header.data() + kFrameHeaderBytes, &offset, sizeof(offset));
  const ucs_status_t status =
      SendNow(endpoint, piece_header, payload.subspan(entry->sent_bytes, piece_bytes));
  if (status != UCS_OK) return status;
  entry->sent_bytes += piece_bytes;
  return entry->sent_bytes < payload.size() ? UCS_INPROGRESS : UCS_OK;
}

ucs_status_t UcxOutbox::Flush(ucp_ep_h endpoint, bool* any) {
  while (!empty()) {
    const ucs_status_t status = SendOne(endpoint, head_, &entries_[head_]);
    if (status == UCS_ERR_NO_RESOURCE) return UCS_OK;
    if (status != UCS_OK && status != UCS_INPROGRESS) return status;
    *any = true;
    if (status == UCS_OK) Pop();
  }
  return UCS_OK;
}

}  // namespace switchyard
