#include "tests/sim/sim_transport.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "tests/sim/world.h"
#include "worker/transport/ring_geometry.h"

namespace switchyard::sim {
namespace {

constexpr char kMappable[] = "mappable";

absl::Status Unreachable() {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kTransport, "nobody is there");
}

bool SameChunk(const FrameHeader& a, const FrameHeader& b) {
  return a.step == b.step && a.layer == b.layer && a.chunk == b.chunk && a.attempt == b.attempt;
}

}  // namespace

SimLink* SimFabric::Find(NodeId node, AttachmentId number) const {
  const auto it = links_.find({node, number});
  return it == links_.end() ? nullptr : it->second;
}

std::vector<SimLink*> SimFabric::LinksOf(NodeId node) const {
  std::vector<SimLink*> links;
  for (auto it = links_.lower_bound({node, AttachmentId{}});
       it != links_.end() && it->first.first == node; ++it) {
    links.push_back(it->second);
  }
  return links;
}

SimTransport::SimTransport(World* world, NodeId node, Incarnation incarnation,
                           std::function<void()> arrived)
    : world_(world), node_(node), incarnation_(incarnation), arrived_(std::move(arrived)) {}

absl::StatusOr<std::unique_ptr<Link>> SimTransport::CreateLink(const LinkOptions& options) {
  LinkOptions rounded = options;
  SY_RETURN_IF_ERROR(RoundRing(&rounded));
  return std::make_unique<SimLink>(this, rounded);
}

bool SimTransport::Progress(FrameSink& sink) {
  sink_ = &sink;
  bool any = inbox_.Deliver(*this);
  for (const AttachmentId number : std::exchange(down_, {})) {
    SimLink* link = world_->fabric.Find(node_, number);
    if (link == nullptr || std::exchange(link->down_, true)) continue;
    sink.OnLinkDown(*link, Broken());
    any = true;
  }
  sink_ = nullptr;
  return any;
}

void SimTransport::OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
                           std::span<const std::byte> payload) {
  auto& waits = static_cast<SimLink&>(link).outstanding_;
  if (header.kind != FrameKind::kRequest) {
    std::optional<FrameHeader>& request = waits[header.reply_slot];
    if (request && SameChunk(*request, header)) request.reset();
  }
  sink_->OnFrame(link, raw, header, payload);
}

TransportStats SimTransport::stats() const {
  TransportStats stats;
  stats.drops = inbox_.drops();
  stats.frames_in = inbox_.frames_in();
  stats.ring_bytes = ring_bytes_;
  return stats;
}

SimLink::SimLink(SimTransport* transport, const LinkOptions& options)
    : Link(options.owner),
      transport_(transport),
      options_(options),
      inbound_(std::make_shared<std::vector<std::byte>>(RingBytesOf(options), std::byte{0xa5})),
      outstanding_(options.slots) {
  const bool mappable = transport->world_->Chance(0.5);
  offer_.transport = "sim";
  offer_.incarnation = transport->incarnation_;
  offer_.frame_version = kFrameVersion;
  offer_.address =
      absl::StrCat(transport->node_, ":", transport->world_->network.node(transport->node_).life);
  offer_.attachment = transport->inbox_.Add(this, {.cookie = options.cookie,
                                                   .slots = options.slots,
                                                   .slot_bytes = options.slot_bytes,
                                                   .memory = *inbound_,
                                                   .mapped = mappable});
  offer_.ring_bytes = inbound_->size();
  offer_.slots = options.slots;
  offer_.slot_bytes = options.slot_bytes;
  if (mappable) offer_.rkey = kMappable;
  transport->ring_bytes_ += inbound_->size();
  transport->world_->fabric.Add(transport->node_, offer_.attachment, this);
  transport->world_->fabric.Keep(inbound_);
}

absl::Status SimLink::Connect(const RingOffer& peer) {
  SY_RETURN_IF_ERROR(CheckPeerOffer(options_, peer, "sim"));
  World& world = *transport_->world_;
  const std::vector<std::string> address = absl::StrSplit(peer.address, ':');
  std::uint64_t life = 0;
  if (!absl::SimpleAtoi(address.at(0), &peer_node_) || !absl::SimpleAtoi(address.at(1), &life) ||
      world.network.node(peer_node_).life != life) {
    return Unreachable();
  }
  peer_ = peer;
  mapped_ = peer.rkey == kMappable;
  if (mapped_) {
    const SimLink* theirs = world.fabric.Find(peer_node_, peer.attachment);
    if (theirs == nullptr) return Unreachable();
    outbound_ = theirs->inbound_;
  } else {
    outbound_ = std::make_shared<std::vector<std::byte>>(peer.ring_bytes, std::byte{0x5a});
    world.fabric.Keep(outbound_);
  }
  wire_ = world.network.Dial(transport_->node_, peer_node_, [](const auto& /*link*/) {});
  wire_->on_down[0] = [transport = transport_, number = offer_.attachment](const absl::Status&) {
    transport->down_.insert(number);
    transport->arrived_();
  };
  return absl::OkStatus();
}

std::span<std::byte> SimLink::OutboundSlot(std::uint32_t slot) {
  if (outbound_ == nullptr) {
    transport_->world_->oracles.Fail("a frame is written to a link that is not connected");
    outbound_ = std::make_shared<std::vector<std::byte>>(RingBytesOf(options_));
    peer_ = offer_;
  }
  return std::span(*outbound_).subspan(std::size_t{slot} * peer_.slot_bytes, peer_.slot_bytes);
}

absl::Status SimLink::Send(std::uint32_t slot, std::size_t frame_bytes) {
  if (wire_ == nullptr || down_) return Broken();
  if (slot >= options_.slots || frame_bytes > peer_.slot_bytes) {
    return BadSend(offer_.attachment, slot, frame_bytes);
  }
  HeaderBytes raw;
  std::memcpy(raw.data(), OutboundSlot(slot).data(), raw.size());
  FrameHeader header;
  if (DecodeHeader(raw, &header) == FrameDrop::kNone && header.kind == FrameKind::kRequest) {
    CheckPairIsFree(slot, header);
  }
  World& world = *transport_->world_;
  const std::size_t payload_begin = std::size_t{slot} * peer_.slot_bytes + kFrameHeaderBytes;
  auto deliver = [fabric = &world.fabric, node = peer_node_, to = peer_.attachment,
                  memory = outbound_, payload_begin, bytes = frame_bytes - kFrameHeaderBytes, raw] {
    if (SimLink* link = fabric->Find(node, to)) {
      link->Land(raw, std::span(*memory).subspan(payload_begin, bytes));
    }
  };
  // Of a message the payload goes twice as well, so not the one of the frame after it.
  auto again = [deliver, memory = outbound_, begin = payload_begin - kFrameHeaderBytes, raw,
                mapped = mapped_] {
    const auto now = std::span(*memory).subspan(begin, raw.size());
    if (mapped || std::ranges::equal(now, raw)) deliver();
  };
  if (world.Chance(world.weather.duplicate)) {
    ++world.stats.faults;
    const Duration later =
        world.Between(std::chrono::microseconds(50), std::chrono::milliseconds(30));
    world.network.AtNode(peer_node_, later, std::move(again));
  }
  wire_->Send(0, std::move(deliver));
  return absl::OkStatus();
}

std::size_t SimLink::outstanding() const {
  return static_cast<std::size_t>(
      std::count_if(outstanding_.begin(), outstanding_.end(),
                    [](const std::optional<FrameHeader>& request) { return request.has_value(); }));
}

void SimLink::CheckPairIsFree(std::uint32_t slot, const FrameHeader& header) {
  std::optional<FrameHeader>& before = outstanding_[slot];
  if (before) {
    transport_->world_->oracles.Fail(absl::StrCat("credits: pair ", slot, " carries step ",
                                                  header.step.value, " before the reply to step ",
                                                  before->step.value, " has come"));
  }
  before = header;
}

void SimLink::Land(const HeaderBytes& header, std::span<const std::byte> payload) {
  if (offer_.rkey == kMappable) {
    transport_->inbox_.OnDoorbell(header);
  } else {
    transport_->inbox_.OnPiece(header, 0, payload);
  }
  transport_->arrived_();
}

void SimLink::Close() {
  if (transport_ == nullptr) return;
  transport_->inbox_.Remove(offer_.attachment);
  transport_->world_->fabric.Remove(transport_->node_, offer_.attachment);
  transport_->ring_bytes_ -= inbound_->size();
  std::fill(inbound_->begin(), inbound_->end(), std::byte{0xdd});
  if (wire_ != nullptr) wire_->Close(0, absl::OkStatus());
  wire_.reset();
  transport_ = nullptr;
}

}  // namespace switchyard::sim
