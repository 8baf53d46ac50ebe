#include "worker/transport/ucx/link_memory.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rng.h"
#include "worker/transport/ring_geometry.h"

namespace switchyard {
namespace {

// The link keeps neither: both live until the memory is free.
LinkOptions WithoutMemory(LinkOptions options) {
  options.memory = nullptr;
  options.until_freed = nullptr;
  return options;
}

}  // namespace

UcxLinkMemory::UcxLinkMemory(Place place, const LinkOptions& options)
    : until_freed_(options.until_freed),
      place_(std::move(place)),
      options_(WithoutMemory(options)),
      tag_(SystemRng().Next()) {
  // A plain ring has no key, so with tcp the peer cannot map it either.
  const auto kind = options.choice == TransportChoice::kTcp ? InboundRing::Kind::kPlain
                                                            : InboundRing::Kind::kMapped;
  absl::StatusOr<InboundRing> ring =
      InboundRing::Allocate(kind, {.slots = options.slots, .slot_bytes = options.slot_bytes}, tag_);
  allocated_ = ring.status();
  if (ring.ok()) ring_ = *std::move(ring);
}

void UcxLinkMemory::OfferedBy(RingServer* server, const RingSecret& secret) {
  server_ = server;
  secret_ = secret;
}

void UcxLinkMemory::Meet(const RingOffer& peer) {
  meeting_ = MeetPeer(peer);
  met_ = true;
}

absl::Status UcxLinkMemory::TakeMeeting(const RingOffer& peer) {
  if (!std::exchange(met_, false)) meeting_ = MeetPeer(peer);
  return meeting_;
}

absl::Status UcxLinkMemory::MeetPeer(const RingOffer& peer) {
  SY_RETURN_IF_ERROR(allocated_);
  SY_RETURN_IF_ERROR(CheckPeerOffer(options_, peer, "ucx"));
  peer_shape_ = {.slots = peer.slots, .slot_bytes = peer.slot_bytes};
  why_messages_ = "tcp was asked for";
  if (options_.choice != TransportChoice::kTcp) {
    absl::StatusOr<PeerRing> ring = MapPeer(peer);
    if (ring.ok()) {
      peer_ring_ = *std::move(ring);
      why_messages_.clear();
      return absl::OkStatus();
    }
    // Without a mapping, auto falls back to messages; shm must not.
    if (options_.choice == TransportChoice::kShm) {
      return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                       absl::StrCat("transport ucx: shm is required, but ", ring.status().message(),
                                    "; run both sides on one host, or use auto or tcp"));
    }
    why_messages_ = std::string(ring.status().message());
  }
  // Pages like those of a mapped ring, so encoders see no difference.
  SY_ASSIGN_OR_RETURN(staging_, AllocatePages(peer_shape_.bytes()));
  return absl::OkStatus();
}

absl::StatusOr<PeerRing> UcxLinkMemory::MapPeer(const RingOffer& peer) {
  SY_ASSIGN_OR_RETURN(const RingKey key, OpenRingKey(peer.rkey));
  SY_ASSIGN_OR_RETURN(RingParts parts, PartsOfPeer(key));
  return PeerRing::Map(std::move(parts), peer_shape_, key.tag);
}

absl::StatusOr<RingParts> UcxLinkMemory::PartsOfPeer(const RingKey& key) {
  if (!options_.connects_at_once) {
    if (server_ == nullptr) return NotMapped("this process could not listen for it");
    const Descriptor visitor = server_->Withdraw(secret_);
    if (!visitor.valid()) {
      return NotMapped("its process has not come for this process's ring, which it maps first");
    }
    return TakeHandedOver(visitor.get());
  }
  SY_ASSIGN_OR_RETURN(RingVisit visit, RingVisit::Make(key, place_.ring_dir));
  // Before the peer's ring is checked: whether the peer can map this one is another matter.
  if (!visit.HandOver(ring_.file(), place_.peer_wake)) {
    return NotMapped(
        "this process could not hand over its own; raise the limit of open files "
        "(ulimit -n)");
  }
  return visit.TakeParts();
}

}  // namespace switchyard
