#include "worker/transport/loopback/link.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/transport/ring_geometry.h"

namespace switchyard {

LoopbackLink::LoopbackLink(LoopbackTransport* transport, const LinkOptions& options,
                           std::shared_ptr<LoopbackRing> ring)
    : Link(options.owner), transport_(transport), options_(options), ring_(std::move(ring)) {
  offer_.transport = "loopback";
  offer_.frame_version = kFrameVersion;
  offer_.address = transport->place_.address;
  offer_.incarnation = transport->options_.incarnation;
  offer_.attachment = transport->inbox_.Add(this, {.cookie = options.cookie,
                                                   .slots = options.slots,
                                                   .slot_bytes = options.slot_bytes,
                                                   .memory = ring_->memory(),
                                                   .mapped = true});
  offer_.ring_bytes = RingBytesOf(options);
  offer_.slots = options.slots;
  offer_.slot_bytes = options.slot_bytes;
  transport->place_.mailbox->AddRing(offer_.attachment, ring_, options.slots, &transport->mail_);
  transport->links_.push_back(this);
  transport->ring_bytes_ += offer_.ring_bytes;
}

absl::Status LoopbackLink::Connect(const RingOffer& peer) {
  if (transport_ == nullptr || peer_ != nullptr) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     "transport loopback: a link can be connected only once; create a new one");
  }
  SY_RETURN_IF_ERROR(CheckPeerOffer(options_, peer, "loopback"));
  std::shared_ptr<LoopbackMailbox> mailbox = transport_->options_.hub->Find(peer.address);
  std::shared_ptr<LoopbackRing> ring;
  if (mailbox != nullptr) ring = mailbox->FindRing(peer.attachment);
  // Watch before the link counts as connected: a peer that dies right after Connect must still be
  // reported.
  if (ring == nullptr || !mailbox->Watch(transport_->place_.mailbox, offer_.attachment)) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kTransport,
                     absl::StrCat("transport loopback: attachment ", peer.attachment.value, " of ",
                                  peer.address, " is gone; attach again"));
  }
  // The offer's size is compared with the ring itself, so that no slot can lie outside it.
  if (ring->memory().size() != peer.ring_bytes) {
    mailbox->Unwatch(transport_->place_.mailbox.get(), offer_.attachment);
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     absl::StrCat("transport loopback: attachment ", peer.attachment.value, " of ",
                                  peer.address, " has a ring of a different size than offered"));
  }
  peer_ = std::move(mailbox);
  peer_ring_ = std::move(ring);
  peer_slot_bytes_ = peer.slot_bytes;
  return absl::OkStatus();
}

std::span<std::byte> LoopbackLink::OutboundSlot(std::uint32_t slot) {
  SY_CHECK(peer_ring_ != nullptr, "a slot of a link that is not connected");
  return peer_ring_->memory().subspan(static_cast<std::size_t>(slot) * peer_slot_bytes_,
                                      peer_slot_bytes_);
}

absl::Status LoopbackLink::DownError() const {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   absl::StrCat("attachment ", offer_.attachment.value,
                                ": the link is down; close it and attach again"));
}

absl::Status LoopbackLink::Send(std::uint32_t slot, std::size_t frame_bytes) {
  if (peer_ == nullptr || down_) return DownError();
  if (slot >= options_.slots || frame_bytes < kFrameHeaderBytes || frame_bytes > peer_slot_bytes_) {
    return BadSend(offer_.attachment, slot, frame_bytes);
  }
  HeaderBytes header;
  // The doorbell carries a copy of the header, like a message of the ucx transport.
  std::memcpy(header.data(), OutboundSlot(slot).data(), header.size());
  // Only the error is returned here. Progress calls OnLinkDown, because a sink must not be called
  // from within Send.
  if (transport_->place_.mailbox->dead() || !peer_->PutDoorbell(header)) return DownError();
  ++transport_->frames_out_;
  return absl::OkStatus();
}

bool LoopbackLink::MarkDown() { return !std::exchange(down_, true); }

void LoopbackLink::Close() {
  if (transport_ == nullptr) return;
  // First out of the inbox, so that no frame is delivered to a link that is being closed.
  transport_->inbox_.Remove(offer_.attachment);
  transport_->place_.mailbox->RemoveRing(offer_.attachment);
  if (peer_ != nullptr) peer_->Unwatch(transport_->place_.mailbox.get(), offer_.attachment);
  peer_.reset();
  peer_ring_.reset();
  ring_.reset();
  transport_->ring_bytes_ -= offer_.ring_bytes;
  std::erase(transport_->links_, this);
  transport_ = nullptr;
}

std::string LoopbackLink::DebugString() const {
  return absl::StrCat("loopback attachment ", offer_.attachment.value, ": out ",
                      LinkPathName(path()), ", in inproc", down_ ? ", down" : "");
}

}  // namespace switchyard
