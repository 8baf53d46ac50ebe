// One attachment between two loopback transports. See worker/transport/transport.h for the
// contract. A send is a write into the peer's ring and a doorbell in its mailbox; nothing is copied
// except the header.
#pragma once

#include <memory>
#include <string>

#include "worker/transport/loopback/mailbox.h"
#include "worker/transport/loopback/transport.h"
#include "worker/transport/transport.h"

namespace switchyard {

class LoopbackLink final : public Link {
 public:
  // `options` must have passed RoundRing, and `ring` has their size. Registers the link with its
  // transport.
  LoopbackLink(LoopbackTransport* transport, const LinkOptions& options,
               std::shared_ptr<LoopbackRing> ring);
  ~LoopbackLink() override { Close(); }

  [[nodiscard]] const RingOffer& offer() const override { return offer_; }
  // Errors: as in Link; kUnavailable (TRANSPORT) if the peer's attachment is closed.
  absl::Status Connect(const RingOffer& peer) override;
  [[nodiscard]] LinkPath path() const override {
    return peer_ring_ == nullptr ? LinkPath::kNone : LinkPath::kInProcess;
  }
  // A span of the peer's ring; the peer reads it after the doorbell.
  [[nodiscard]] std::span<std::byte> OutboundSlot(std::uint32_t slot) override;
  [[nodiscard]] std::span<std::byte> inbound_memory() override { return ring_->memory(); }
  [[nodiscard]] std::span<std::byte> outbound_memory() override { return peer_ring_->memory(); }
  absl::Status Send(std::uint32_t slot, std::size_t frame_bytes) override;
  void Close() override;
  [[nodiscard]] std::string DebugString() const override;

  // For the transport: records that the peer is dead. True for the first call, so that the sink
  // hears of it once.
  bool MarkDown();
  // The error of a link that is down, for OnLinkDown and Send.
  [[nodiscard]] absl::Status DownError() const;

 private:
  LoopbackTransport* transport_;  // null once closed
  const LinkOptions options_;
  RingOffer offer_;
  // This side's inbound ring; the peer holds it too.
  std::shared_ptr<LoopbackRing> ring_;
  // Set between Connect and Close. Shared, because the peer may close while this side still writes.
  std::shared_ptr<LoopbackMailbox> peer_;
  std::shared_ptr<LoopbackRing> peer_ring_;
  std::uint32_t peer_slot_bytes_ = 0;
  bool down_ = false;  // the peer has died
};

}  // namespace switchyard
