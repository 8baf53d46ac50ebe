// The memory of one UCX link: its own ring, and the peer's ring or the staging memory of its
// outbox. See LinkMemory in worker/transport/transport.h.
//
// One thread at a time uses it, but for the ring: the link goes on with that, and may close, while
// another thread is in Meet, which leaves the ring alone once there is a link. Owned by the link,
// and by whoever is still making it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "worker/transport/ring_exchange.h"
#include "worker/transport/ring_server.h"
#include "worker/transport/shared_ring.h"
#include "worker/transport/transport.h"

namespace switchyard {

class UcxLinkMemory final : public LinkMemory {
 public:
  // The transport's part. Constant, so that every thread may read it.
  struct Place {
    std::string ring_dir;
    int peer_wake = -1;  // of the transport's Sleeper, for the peers of mapped rings
  };

  // Allocates the ring. `options`: those of the link, rounded (RoundRing).
  UcxLinkMemory(Place place, const LinkOptions& options);

  // Errors: those of InboundRing::Allocate.
  [[nodiscard]] const absl::Status& allocated() const { return allocated_; }
  [[nodiscard]] InboundRing& ring() { return ring_; }
  [[nodiscard]] const InboundRing& ring() const { return ring_; }
  [[nodiscard]] std::uint64_t tag() const { return tag_; }
  // `server`, which lives as long as the transport, offers the ring under `secret`: the peer comes
  // for it before Meet.
  void OfferedBy(RingServer* server, const RingSecret& secret);

  void Meet(const RingOffer& peer) override;
  // For Connect: what the last Meet came to; meets now if there was none since the last call.
  // Errors: kFailedPrecondition (TRANSPORT) if the offer does not fit, or shm is required and not
  // possible; kResourceExhausted (OUT_OF_MEMORY).
  absl::Status TakeMeeting(const RingOffer& peer);
  // All below is set by a Meet that succeeded.
  [[nodiscard]] const RingShape& peer_shape() const { return peer_shape_; }
  [[nodiscard]] PeerRing& peer_ring() { return peer_ring_; }
  [[nodiscard]] bool mapped_peer() const { return !peer_ring_.memory().empty(); }
  // Why the peer's ring is not mapped; else empty.
  [[nodiscard]] const std::string& why_messages() const { return why_messages_; }
  // The slots that frames are written to: the peer's ring or the staging memory.
  [[nodiscard]] std::span<std::byte> outbound() const {
    return mapped_peer() ? peer_ring_.memory() : staging_.memory();
  }

 private:
  absl::Status MeetPeer(const RingOffer& peer);
  // Gets the peer's ring, and gives it this one if this side is the visitor.
  absl::StatusOr<PeerRing> MapPeer(const RingOffer& peer);
  absl::StatusOr<RingParts> PartsOfPeer(const RingKey& key);

  // First, so that it is released last.
  const std::shared_ptr<void> until_freed_;
  const Place place_;
  const LinkOptions options_;  // without memory and until_freed
  const std::uint64_t tag_;
  absl::Status allocated_;
  InboundRing ring_;
  RingServer* server_ = nullptr;  // of a ring that is offered
  RingSecret secret_;
  bool met_ = false;
  absl::Status meeting_;
  RingShape peer_shape_;
  PeerRing peer_ring_;
  RingPages staging_;  // for messages
  std::string why_messages_;
};

}  // namespace switchyard
