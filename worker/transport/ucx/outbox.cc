#include "worker/transport/ucx/outbox.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "worker/transport/inbox.h"
#include "worker/transport/shared_stores.h"

namespace switchyard {
namespace {

std::size_t PiecesOf(std::size_t payload_bytes) {
  return std::max<std::size_t>(1, (payload_bytes + kPieceBytes - 1) / kPieceBytes);
}

std::size_t RingBytes(const UcxOutbox::Geometry& geometry) {
  return static_cast<std::size_t>(geometry.slots) * geometry.slot_bytes;
}

constexpr std::align_val_t kStagingAlign{4096};

}  // namespace

UcxOutbox::UcxOutbox(const Geometry& geometry, std::span<std::byte> mapped_ring)
    : geometry_(geometry),
      mapped_(!mapped_ring.empty()),
      pieces_per_slot_(mapped_ ? 1 : PiecesOf(geometry.slot_bytes - kFrameHeaderBytes)),
      memory_(mapped_ring),
      headers_(geometry.slots * pieces_per_slot_) {
  if (!mapped_) {
    const std::size_t bytes = RingBytes(geometry);
    memory_ = {static_cast<std::byte*>(::operator new(bytes, kStagingAlign)), bytes};
    std::memset(memory_.data(), 0, memory_.size());  // pages come now, not in a step
  }
}

UcxOutbox::~UcxOutbox() {
  if (!mapped_) ::operator delete(memory_.data(), kStagingAlign);
}

std::span<std::byte> UcxOutbox::Slot(std::uint32_t slot) const {
  return memory_.subspan(static_cast<std::size_t>(slot) * geometry_.slot_bytes,
                         geometry_.slot_bytes);
}

ucs_status_t UcxOutbox::Send(ucp_ep_h endpoint, std::uint32_t slot, std::size_t frame_bytes) {
  const std::span<const std::byte> frame = Slot(slot).first(frame_bytes);
  PieceHeader* headers = &headers_[slot * pieces_per_slot_];
  // The header goes from a copy: the ring may be unmapped before UCX has read it.
  std::memcpy(headers->data(), frame.data(), kFrameHeaderBytes);
  if (mapped_) {
    PublishStores();
    return Post(endpoint, std::span(*headers).first(kFrameHeaderBytes), {});
  }
  const std::span<const std::byte> payload = frame.subspan(kFrameHeaderBytes);
  const std::size_t pieces = PiecesOf(payload.size());
  for (std::size_t i = 0; i < pieces; ++i) {
    const std::size_t begin = i * kPieceBytes;
    PieceHeader& header = headers[i];
    if (i > 0) std::memcpy(header.data(), headers->data(), kFrameHeaderBytes);
    const std::array<std::uint32_t, 2> place = {static_cast<std::uint32_t>(begin), 0};
    std::memcpy(header.data() + kFrameHeaderBytes, place.data(), sizeof(place));
    const ucs_status_t status = Post(
        endpoint, header, payload.subspan(begin, std::min(kPieceBytes, payload.size() - begin)));
    if (status != UCS_OK) return status;
  }
  return UCS_OK;
}

ucs_status_t UcxOutbox::Post(ucp_ep_h endpoint, std::span<const std::byte> header,
                             std::span<const std::byte> data) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.send = &UcxOutbox::OnSent;
  param.user_data = this;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoint, kFrameMessageId, header.data(), header.size(),
                      data.empty() ? nullptr : data.data(), data.size(), &param);
  if (UCS_PTR_IS_ERR(request)) return UCS_PTR_STATUS(request);
  if (request != nullptr) ++pending_;
  return UCS_OK;
}

// A failed send is told by the endpoint's error handler; here only the memory becomes free.
void UcxOutbox::OnSent(void* request, ucs_status_t /*status*/, void* user_data) {
  --static_cast<UcxOutbox*>(user_data)->pending_;
  ucp_request_free(request);
}

}  // namespace switchyard
