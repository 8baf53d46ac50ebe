// The data plane's wires: rings between simulated processes and doorbells over the simulated
// network.
//
// A ring is either mapped (the peer's stores are there at once, its doorbell comes later) or not
// (the payload is taken from the sender's memory when it arrives, as late as the transport may).
// The guards in front of the sink are the product's (Inbox). Doorbells of one link keep their
// order; links overtake each other, and now and then one comes twice. The memory of a closed ring
// is overwritten and kept, so that a late look at it is seen and harmless.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/network.h"
#include "worker/transport/inbox.h"
#include "worker/transport/transport.h"

namespace switchyard::sim {

class World;
class SimLink;

using RingMemory = std::shared_ptr<std::vector<std::byte>>;

// Which link has which number, in all processes that live.
class SimFabric {
 public:
  void Add(NodeId node, AttachmentId number, SimLink* link) { links_[{node, number}] = link; }
  void Remove(NodeId node, AttachmentId number) { links_.erase({node, number}); }
  [[nodiscard]] SimLink* Find(NodeId node, AttachmentId number) const;
  [[nodiscard]] std::vector<SimLink*> LinksOf(NodeId node) const;
  void Keep(RingMemory memory) { kept_.push_back(std::move(memory)); }

 private:
  std::map<std::pair<NodeId, AttachmentId>, SimLink*> links_;
  std::vector<RingMemory> kept_;
};

class SimTransport final : public Transport, private FrameSink {
 public:
  // `arrived`: Progress is wanted.
  SimTransport(World* world, NodeId node, Incarnation incarnation, std::function<void()> arrived);

  absl::StatusOr<std::unique_ptr<Link>> CreateLink(const LinkOptions& options) override;
  bool Progress(FrameSink& sink) override;
  bool Arm() override { return true; }
  void Wait(Duration /*max*/) override {}
  void Wake() override { arrived_(); }
  void CountDrop(FrameDrop drop) override { inbox_.CountDrop(drop); }
  [[nodiscard]] MemoryKind slot_memory() const override { return MemoryKind::kHost; }
  [[nodiscard]] TransportStats stats() const override;

 private:
  friend class SimLink;
  void OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
               std::span<const std::byte> payload) override;
  void OnLinkDown(Link& /*link*/, const absl::Status& /*why*/) override {}

  World* world_;
  NodeId node_;
  Incarnation incarnation_;
  std::function<void()> arrived_;
  Inbox inbox_;
  std::set<AttachmentId> down_;  // to be told of
  std::uint64_t ring_bytes_ = 0;
  FrameSink* sink_ = nullptr;  // of the Progress that runs
};

class SimLink final : public Link {
 public:
  SimLink(SimTransport* transport, const LinkOptions& options);
  ~SimLink() override { Close(); }

  [[nodiscard]] const RingOffer& offer() const override { return offer_; }
  absl::Status Connect(const RingOffer& peer) override;
  [[nodiscard]] LinkPath path() const override {
    return mapped_ ? LinkPath::kMapped : LinkPath::kMessages;
  }
  [[nodiscard]] std::span<std::byte> OutboundSlot(std::uint32_t slot) override;
  absl::Status Send(std::uint32_t slot, std::size_t frame_bytes) override;
  void Close() override;
  [[nodiscard]] std::string DebugString() const override { return "simulated"; }
  // Requests whose replies have not come.
  [[nodiscard]] std::size_t outstanding() const;

 private:
  friend class SimTransport;
  void CheckPairIsFree(std::uint32_t slot, const FrameHeader& header);
  // At the receiver.
  void Land(const HeaderBytes& header, std::span<const std::byte> payload);

  SimTransport* transport_;  // nullptr once closed
  LinkOptions options_;
  RingOffer offer_;
  RingMemory inbound_;
  RingMemory outbound_;  // the peer's ring, or memory to send from
  RingOffer peer_;
  NodeId peer_node_ = 0;
  bool mapped_ = false;  // toward the peer
  bool down_ = false;
  std::shared_ptr<Wire> wire_;
  // By slot: the request whose reply has not come.
  std::vector<std::optional<FrameHeader>> outstanding_;
};

}  // namespace switchyard::sim
