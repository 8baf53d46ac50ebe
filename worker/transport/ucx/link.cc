#include "worker/transport/ucx/link.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/transport/ring_geometry.h"
#include "worker/transport/sealed_blob.h"
#include "worker/transport/ucx/lanes.h"

namespace switchyard {
namespace {

constexpr std::size_t kVersionCharsMax = 32;

absl::Status TransportError(const std::string& text) {
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport, text);
}

// False for an empty list: UCX printed no lanes, so tcp is not proven.
bool AllTcp(absl::string_view lanes) {
  if (lanes.empty()) return false;
  const std::vector<absl::string_view> names = absl::StrSplit(lanes, ',');
  return std::ranges::all_of(names,
                             [](absl::string_view name) { return absl::StartsWith(name, "tcp/"); });
}

// UCX promises to read addresses and messages of other versions; nobody tests that for ours. The
// third number of a version changes neither.
absl::Status CheckVersion(absl::string_view peer) {
  const std::string own = UcxVersion();
  const auto series = [](absl::string_view version) {
    return version.substr(0, version.rfind('.'));
  };
  if (series(peer) == series(own)) return absl::OkStatus();
  // Cut and escaped: a hostile peer may send anything.
  return TransportError(absl::StrCat(
      "transport ucx: the peer has UCX \"", absl::CHexEscape(peer.substr(0, kVersionCharsMax)),
      "\", this process UCX ", own, "; install one version of UCX on both sides"));
}

}  // namespace

UcxLink::UcxLink(UcxCore* core, const LinkOptions& options)
    : Link(options.owner), core_(core), options_(options) {}

absl::StatusOr<std::unique_ptr<UcxLink>> UcxLink::Create(UcxCore* core,
                                                         const LinkOptions& options) {
  LinkOptions rounded = options;
  SY_RETURN_IF_ERROR(RoundRing(&rounded));
  if (options.choice == TransportChoice::kInProcess) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     "transport ucx: inproc needs transport loopback; use auto, shm or tcp");
  }
  std::unique_ptr<UcxLink> link(new UcxLink(core, rounded));
  if (absl::Status allocated = link->AllocateRing(); !allocated.ok()) {
    link->core_ = nullptr;  // nothing to close yet
    return allocated;
  }
  core->links.push_back(link.get());
  link->awaits_peer_ = !options.connects_at_once;
  if (link->awaits_peer_) core->admission.Await();
  return link;
}

absl::Status UcxLink::AllocateRing() {
  const std::size_t bytes = RingBytesOf(options_);
  // A plain ring has no key, so with tcp the peer cannot map it either.
  const auto kind = options_.choice == TransportChoice::kTcp ? InboundRing::Kind::kPlain
                                                             : InboundRing::Kind::kMapped;
  const std::uint64_t tag = core_->rng.Next();
  SY_ASSIGN_OR_RETURN(ring_,
                      InboundRing::Allocate(
                          kind, {.slots = options_.slots, .slot_bytes = options_.slot_bytes}, tag));
  if (ring_.mapped()) {
    SY_ASSIGN_OR_RETURN(offer_.rkey, OfferRing(tag));
  }
  core_->ring_bytes += bytes;

  offer_.transport = "ucx";
  offer_.transport_version = UcxVersion();
  offer_.frame_version = kFrameVersion;
  offer_.address = SealBlob(BlobKind::kAddress, core_->ucx->address());
  offer_.incarnation = core_->incarnation;
  offer_.attachment = core_->inbox.Add(this, {.cookie = options_.cookie,
                                              .slots = options_.slots,
                                              .slot_bytes = options_.slot_bytes,
                                              .memory = ring_.memory(),
                                              .mapped = ring_.mapped()});
  offer_.ring_bytes = bytes;
  offer_.slots = options_.slots;
  offer_.slot_bytes = options_.slot_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::string> UcxLink::OfferRing(std::uint64_t tag) {
  RingKey key{.tag = tag};
  // A visitor brings its ring itself.
  if (options_.connects_at_once) return SealRingKey(key);
  if (core_->ring_server == nullptr) {
    core_->ring_socket = core_->rng.NextId<SocketName>();
    auto started = RingServer::Start(core_->ring_dir, core_->ring_socket);
    // Without a server, rows travel as messages unless that is excluded.
    if (!started.ok() && options_.choice == TransportChoice::kShm) return started.status();
    if (!started.ok()) return SealRingKey(key);
    core_->ring_server = *std::move(started);
  }
  secret_ = core_->rng.NextId<RingSecret>();
  core_->ring_server->Offer(secret_, ring_.file(), core_->peer_wake);
  key.socket = core_->ring_socket;
  key.secret = secret_;
  key.in_directory = !core_->ring_dir.empty();
  return SealRingKey(key);
}

absl::Status UcxLink::Connect(const RingOffer& peer) {
  if (core_ == nullptr || endpoint_ != nullptr) {
    return TransportError("transport ucx: a link can be connected only once; create a new one");
  }
  SY_RETURN_IF_ERROR(CheckPeerOffer(options_, peer, "ucx"));
  SY_RETURN_IF_ERROR(MakeEndpoint(peer));
  absl::Status chosen = ChoosePath(peer);
  chosen.ok() ? AdmitPeer(peer) : CloseEndpoint();
  return chosen;
}

void UcxLink::AdmitPeer(const RingOffer& peer) {
  // MakeEndpoint has read the same address before.
  const auto hosts = UcxAddressCheck::HostsOf(*OpenBlob(BlobKind::kAddress, peer.address));
  if (hosts.ok()) core_->admission.Admit(*hosts, core_->clock.Now() + core_->admission_time);
  EndAwait();
}

void UcxLink::EndAwait() {
  if (std::exchange(awaits_peer_, false)) core_->admission.EndAwait();
}

absl::Status UcxLink::MakeEndpoint(const RingOffer& peer) {
  SY_RETURN_IF_ERROR(CheckVersion(peer.transport_version));
  const std::optional<absl::string_view> address = OpenBlob(BlobKind::kAddress, peer.address);
  if (!address.has_value()) {
    return TransportError(
        "transport ucx: the peer's address is not valid here; check that both sides run the same "
        "release");
  }
  // The seal shows damage, but anyone can compute it. UCX gets only what the check has packed.
  SY_ASSIGN_OR_RETURN(const std::string checked, core_->ucx->address_check().Rewrite(*address));
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_FLAGS;
  params.flags = UCP_EP_PARAMS_FLAGS_NO_LOOPBACK;
  params.address = reinterpret_cast<const ucp_address_t*>(checked.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxLink::OnEndpointError, this};
  const ucs_status_t status = ucp_ep_create(core_->ucx->sender(), &params, &endpoint_);
  if (status == UCS_OK) return absl::OkStatus();
  endpoint_ = nullptr;
  return MakeError(absl::StatusCode::kUnavailable, Reason::kTransport,
                   absl::StrCat("transport ucx: cannot create an endpoint for attachment ",
                                offer_.attachment.value, ": ", ucs_status_string(status),
                                "; check that the peer's host is reachable by tcp"));
}

absl::StatusOr<RingVisit> VisitRing(const RingOffer& peer, const std::string& ring_dir) {
  SY_ASSIGN_OR_RETURN(const RingKey key, OpenRingKey(peer.rkey));
  return RingVisit::Make(key, ring_dir);
}

absl::StatusOr<RingParts> UcxLink::PartsOfPeer(const RingOffer& peer) {
  if (!options_.connects_at_once && secret_.empty()) {
    return NotMapped("this process could not listen for it, or has tried already");
  }
  if (!options_.connects_at_once) {
    const Descriptor visitor = core_->ring_server->Withdraw(std::exchange(secret_, {}));
    if (!visitor.valid()) {
      return NotMapped("its process has not come for this process's ring, which it maps first");
    }
    return TakeHandedOver(visitor.get());
  }
  absl::StatusOr<RingVisit> visit =
      options_.visit != nullptr ? std::move(static_cast<UcxVisit*>(options_.visit.get())->result)
                                : VisitRing(peer, core_->ring_dir);
  if (!visit.ok()) return visit.status();
  // Before the peer's ring is checked: whether the peer can map this one is another matter.
  if (!visit->HandOver(ring_.file(), core_->peer_wake)) {
    return NotMapped(
        "this process could not hand over its own; raise the limit of open files "
        "(ulimit -n)");
  }
  return visit->TakeParts();
}

absl::StatusOr<PeerRing> UcxLink::MapPeer(const RingOffer& peer) {
  SY_ASSIGN_OR_RETURN(const RingKey key, OpenRingKey(peer.rkey));
  SY_ASSIGN_OR_RETURN(RingParts parts, PartsOfPeer(peer));
  return PeerRing::Map(std::move(parts), {.slots = peer.slots, .slot_bytes = peer.slot_bytes},
                       key.tag);
}

absl::Status UcxLink::ChoosePath(const RingOffer& peer) {
  why_messages_ = "tcp was asked for";
  if (options_.choice != TransportChoice::kTcp) {
    absl::StatusOr<PeerRing> ring = MapPeer(peer);
    // Without a mapping, auto falls back to messages; shm must not.
    if (ring.ok()) {
      peer_ring_ = std::move(ring).value();
      why_messages_.clear();
    } else if (options_.choice == TransportChoice::kShm) {
      return TransportError(absl::StrCat("transport ucx: shm is required, but ",
                                         ring.status().message(),
                                         "; run both sides on one host, or use auto or tcp"));
    } else {
      why_messages_ = std::string(ring.status().message());
    }
  }
  lanes_ = LanesOf(endpoint_);
  if (options_.choice == TransportChoice::kTcp && !AllTcp(lanes_)) {
    return TransportError(
        absl::StrCat("transport ucx: tcp is required, but UCX uses lanes \"", lanes_, "\""));
  }
  SY_ASSIGN_OR_RETURN(
      outbox_,
      UcxOutbox::Create({.slots = peer.slots, .slot_bytes = peer.slot_bytes}, peer_ring_.memory()));
  path_ = peer_ring_.memory().empty() ? LinkPath::kMessages : LinkPath::kMapped;
  peer_slot_bytes_ = peer.slot_bytes;
  return absl::OkStatus();
}

absl::Status UcxLink::DownError() const {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   absl::StrCat("attachment ", offer_.attachment.value, ": the link is down (",
                                failure_ == UCS_OK ? "closed" : ucs_status_string(failure_),
                                "); close it and attach again"));
}

absl::Status UcxLink::Send(std::uint32_t slot, std::size_t frame_bytes) {
  if (outbox_ == nullptr || failure_ != UCS_OK) return DownError();
  if (slot >= options_.slots || frame_bytes < kFrameHeaderBytes || frame_bytes > peer_slot_bytes_) {
    return BadSend(offer_.attachment, slot, frame_bytes);
  }
  // Frames keep their order: none is rung while another waits for UCX.
  if (path_ == LinkPath::kMapped && outbox_->empty() && peer_ring_.Ring(slot)) {
    ++core_->frames_out;
    return absl::OkStatus();
  }
  // Queue even if nothing waits: Flush is the only path to UCX, so frames cannot overtake others.
  if (outbox_->empty()) ++core_->links_unsent;
  outbox_->Queue(slot, frame_bytes);
  Flush();
  if (failure_ != UCS_OK) return DownError();
  ++core_->frames_out;
  return absl::OkStatus();
}

bool UcxLink::Flush() {
  bool any = false;
  if (outbox_ == nullptr || outbox_->empty() || failure_ != UCS_OK) return any;
  const ucs_status_t status = outbox_->Flush(endpoint_, &any);
  if (status != UCS_OK) MarkDown(status);
  if (outbox_->empty()) --core_->links_unsent;
  return any;
}

bool UcxLink::TakeDoorbells() {
  bool any = false;
  if (!ring_.mapped()) return any;
  for (std::uint32_t i = 0; i < options_.slots; ++i) {
    const std::optional<std::uint32_t> slot = ring_.bells().Take();
    if (!slot.has_value()) break;
    core_->inbox.OnRung(offer_.attachment, *slot);
    any = true;
  }
  return any;
}

// Progress calls the sink later, outside of UCX and outside of Send, because a sink may close the
// link.
void UcxLink::MarkDown(ucs_status_t status) {
  // Only the first failure is reported; later ones follow from it.
  if (failure_ != UCS_OK) return;
  failure_ = status;
  down_unreported_ = true;
  ++core_->links_down;
}

void UcxLink::OnEndpointError(void* self, ucp_ep_h /*endpoint*/, ucs_status_t status) {
  static_cast<UcxLink*>(self)->MarkDown(status);
}

bool UcxLink::TakeDown(absl::Status* why) {
  if (!down_unreported_) return false;
  down_unreported_ = false;
  --core_->links_down;
  *why = DownError();
  return true;
}

void UcxLink::CloseEndpoint() {
  if (endpoint_ == nullptr) return;
  // Forced: an orderly close would wait for a peer that may be dead, on the data thread.
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(endpoint_, &param);
  if (UCS_PTR_IS_PTR(request)) ucp_request_free(request);  // UCX completes the close in Progress
  endpoint_ = nullptr;
  if (outbox_ != nullptr && !outbox_->empty()) --core_->links_unsent;
  outbox_.reset();
  peer_ring_ = PeerRing();
  path_ = LinkPath::kNone;
}

void UcxLink::Close() {
  if (core_ == nullptr) return;
  // First out of the inbox, so that no frame lands in a ring that is being freed.
  core_->inbox.Remove(offer_.attachment);
  EndAwait();
  CloseEndpoint();
  if (down_unreported_) --core_->links_down;
  down_unreported_ = false;
  if (!secret_.empty()) core_->ring_server->Withdraw(secret_);  // before the ring is closed
  ring_ = InboundRing();
  core_->ring_bytes -= offer_.ring_bytes;
  std::erase(core_->links, this);
  core_ = nullptr;
}

std::string UcxLink::DebugString() const {
  return absl::StrCat("ucx attachment ", offer_.attachment.value, ": out ", LinkPathName(path_),
                      ", in ", ring_.mapped() ? "mapped" : "messages", ", lanes ",
                      lanes_.empty() ? "none" : lanes_,
                      failure_ == UCS_OK ? "" : absl::StrCat(", ", ucs_status_string(failure_)));
}

}  // namespace switchyard
