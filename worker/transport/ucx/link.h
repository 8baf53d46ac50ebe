// One attachment over UCX: an inbound ring, an endpoint, an outbox. See
// worker/transport/transport.h for the contract. The endpoint reports the peer's death and, if the
// peer's ring cannot be mapped, carries the frames.
//
// Each side greets its peer by the first message over its endpoint, and so tells that its
// connection is there and that the peer need not admit anybody for it any more.
//
// A side that connects at once is known to its peer only when the answer has come there, and the
// peer's kernel discards its attempts until then. So its Connect makes no endpoint. The peer's
// greeting does; or the first frame that needs one, since it answers a frame of the peer; or the
// end of its patience, because peers of earlier releases do not greet.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "worker/transport/doorbells.h"
#include "worker/transport/ring_exchange.h"
#include "worker/transport/transport.h"
#include "worker/transport/ucx/core.h"
#include "worker/transport/ucx/link_memory.h"
#include "worker/transport/ucx/outbox.h"

namespace switchyard {

class UcxLink final : public Link {
 public:
  // Errors: those of Transport::CreateLink; kInvalidArgument (BAD_CONFIG) for choice inproc.
  static absl::StatusOr<std::unique_ptr<UcxLink>> Create(UcxCore* core, const LinkOptions& options);
  ~UcxLink() override { Close(); }

  [[nodiscard]] const RingOffer& offer() const override { return offer_; }
  absl::Status Connect(const RingOffer& peer) override;
  [[nodiscard]] LinkPath path() const override { return path_; }
  [[nodiscard]] std::string why_messages() const override { return why_messages_; }
  [[nodiscard]] std::span<std::byte> OutboundSlot(std::uint32_t slot) override {
    return outbox_->Slot(slot);
  }
  [[nodiscard]] std::span<std::byte> inbound_memory() override { return memory_->ring().memory(); }
  [[nodiscard]] std::span<std::byte> outbound_memory() override { return outbox_->memory(); }
  // Rings in the peer's ring if that is mapped. Otherwise calls Flush once; what UCX does not
  // accept waits for Progress.
  absl::Status Send(std::uint32_t slot, std::size_t frame_bytes) override;
  void Close() override;
  [[nodiscard]] std::string DebugString() const override;

  // For the transport: true if OnLinkDown is due, with the reason in `why`. Later calls return
  // false.
  bool TakeDown(absl::Status* why);
  // For the transport: sends queued frames as far as UCX accepts them. True if it sent any.
  bool Flush();
  // For the transport: the peer has connected, and has admitted this side. May run inside a UCX
  // callback: it is Progress that acts on it.
  void OnGreeting() { greeted_ = true; }
  // For the transport: makes the endpoint if this link has been greeted or has waited long enough,
  // and admits the peer no longer than it needs.
  void KeepTimes(TimePoint now);
  // For the transport, of a mapped inbound ring; the others have no doorbells: passes frames that
  // the peer rang to the inbox, at most one for each slot. True if there was one.
  bool TakeDoorbells();
  [[nodiscard]] bool rung() const {
    const InboundRing& ring = memory_->ring();
    return ring.mapped() && ring.bells().rung();
  }
  void SetBells(BellState state) {
    InboundRing& ring = memory_->ring();
    if (ring.mapped()) ring.bells().SetState(state);
  }

 private:
  UcxLink(UcxCore* core, const LinkOptions& options, std::shared_ptr<UcxLinkMemory> memory);
  // Fills the offer.
  absl::Status OfferMemory();
  // Makes the ring available to a peer that comes for it. Returns its key.
  absl::StatusOr<std::string> OfferRing();
  // The address of the peer's receiver, as UCX may read it.
  [[nodiscard]] absl::StatusOr<std::string> CheckedAddress(const RingOffer& peer) const;
  // Creates the endpoint to peer_address_. Does not wait for the connection. UCS_ERR_UNSUPPORTED if
  // it has lanes that the options exclude.
  ucs_status_t MakeEndpoint();
  [[nodiscard]] absl::Status EndpointError(ucs_status_t status) const;
  // MakeEndpoint for a link that has waited; a failure takes it down.
  void ConnectNow();
  // Through the peer's ring or by messages, as the memory says.
  absl::Status ChoosePath(const RingOffer& peer);
  // The peer is known: its hosts may connect until it greets, for some time.
  void AdmitPeer(const RingOffer& peer);
  void EndAdmission();
  // From now on the endpoint exists, and the greeting is due.
  void BeginGreeting();
  // Sends the greeting if it is due. False if it has to wait.
  bool Greet();
  // Closes without waiting for the peer. Both are idempotent.
  void CloseEndpoint();
  void Disconnect();
  // Records a failure. Does not call the sink: it may run inside a UCX callback.
  void MarkDown(ucs_status_t status);
  [[nodiscard]] absl::Status DownError() const;
  // UCX's callback for a failed endpoint; `self` is the link.
  static void OnEndpointError(void* self, ucp_ep_h endpoint, ucs_status_t status);

  UcxCore* core_;              // null once closed
  const LinkOptions options_;  // without memory
  RingOffer offer_;
  std::shared_ptr<UcxLinkMemory> memory_;  // null once closed
  RingSecret secret_;  // under which the server offers the ring; empty: it does not
  // Set between Connect and Close.
  std::unique_ptr<UcxOutbox> outbox_;
  std::string peer_address_;  // until there is an endpoint
  bool waits_ = false;        // with the endpoint, at most until connects_by_
  TimePoint connects_by_{};
  bool admits_ = false;  // the peer, at most until admits_until_
  TimePoint admits_until_{};
  bool greeted_ = false;  // by the peer
  bool greets_ = false;   // greeting_ is still to be sent
  GreetingBytes greeting_{};
  ucp_ep_h endpoint_ = nullptr;
  LinkPath path_ = LinkPath::kNone;
  std::string lanes_;  // "tcp/lo"
  std::string why_messages_;
  // The first failure of the endpoint; UCS_OK: none.
  ucs_status_t failure_ = UCS_OK;
  bool down_unreported_ = false;  // OnLinkDown is due
};

}  // namespace switchyard
