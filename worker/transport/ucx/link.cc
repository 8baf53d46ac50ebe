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

UcxLink::UcxLink(UcxCore* core, const LinkOptions& options, std::shared_ptr<UcxLinkMemory> memory)
    : Link(options.owner), core_(core), options_(options), memory_(std::move(memory)) {}

absl::StatusOr<std::unique_ptr<UcxLink>> UcxLink::Create(UcxCore* core,
                                                         const LinkOptions& options) {
  LinkOptions rounded = options;
  SY_RETURN_IF_ERROR(RoundRing(&rounded));
  if (options.choice == TransportChoice::kInProcess) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     "transport ucx: inproc needs transport loopback; use auto, shm or tcp");
  }
  auto memory = std::static_pointer_cast<UcxLinkMemory>(std::move(rounded.memory));
  if (memory == nullptr) memory = std::make_shared<UcxLinkMemory>(core->place, rounded);
  SY_RETURN_IF_ERROR(memory->allocated());
  rounded.memory = nullptr;
  rounded.until_freed = nullptr;
  std::unique_ptr<UcxLink> link(new UcxLink(core, rounded, std::move(memory)));
  if (absl::Status offered = link->OfferMemory(); !offered.ok()) {
    link->core_ = nullptr;  // nothing to close yet
    return offered;
  }
  core->links.push_back(link.get());
  return link;
}

absl::Status UcxLink::OfferMemory() {
  const InboundRing& ring = memory_->ring();
  if (ring.mapped()) {
    SY_ASSIGN_OR_RETURN(offer_.rkey, OfferRing());
  }
  const std::size_t bytes = RingBytesOf(options_);
  core_->ring_bytes += bytes;

  offer_.transport = "ucx";
  offer_.transport_version = UcxVersion();
  offer_.frame_version = kFrameVersion;
  offer_.address = SealBlob(BlobKind::kAddress, core_->ucx->address());
  offer_.incarnation = core_->incarnation;
  offer_.attachment = core_->inbox.Add(this, {.cookie = options_.cookie,
                                              .slots = options_.slots,
                                              .slot_bytes = options_.slot_bytes,
                                              .memory = ring.memory(),
                                              .mapped = ring.mapped()});
  offer_.ring_bytes = bytes;
  offer_.slots = options_.slots;
  offer_.slot_bytes = options_.slot_bytes;
  return absl::OkStatus();
}

absl::StatusOr<std::string> UcxLink::OfferRing() {
  RingKey key{.tag = memory_->tag()};
  // A visitor brings its ring itself.
  if (options_.connects_at_once) return SealRingKey(key);
  if (core_->ring_server == nullptr) {
    core_->ring_socket = core_->rng.NextId<SocketName>();
    auto started = RingServer::Start(core_->place.ring_dir, core_->ring_socket);
    // Without a server, rows travel as messages unless that is excluded.
    if (!started.ok() && options_.choice == TransportChoice::kShm) return started.status();
    if (!started.ok()) return SealRingKey(key);
    core_->ring_server = *std::move(started);
  }
  secret_ = core_->rng.NextId<RingSecret>();
  core_->ring_server->Offer(secret_, memory_->ring().file(), core_->place.peer_wake);
  memory_->OfferedBy(core_->ring_server.get(), secret_);
  key.socket = core_->ring_socket;
  key.secret = secret_;
  key.in_directory = !core_->place.ring_dir.empty();
  return SealRingKey(key);
}

absl::Status UcxLink::Connect(const RingOffer& peer) {
  if (core_ == nullptr || outbox_ != nullptr) {
    return TransportError("transport ucx: a link can be connected only once; create a new one");
  }
  SY_RETURN_IF_ERROR(CheckPeerOffer(options_, peer, "ucx"));
  SY_ASSIGN_OR_RETURN(peer_address_, CheckedAddress(peer));
  greeting_ = EncodeGreeting(peer.attachment, options_.cookie);
  if (!options_.connects_at_once) {
    const ucs_status_t made = MakeEndpoint();
    if (made != UCS_OK) return EndpointError(made);
  }
  absl::Status chosen = ChoosePath(peer);
  if (!chosen.ok()) {
    CloseEndpoint();
    return chosen;
  }
  AdmitPeer(peer);
  if (options_.connects_at_once) {
    waits_ = true;
    connects_by_ = core_->clock.Now() + core_->admission_time / kUcxPatiencePart;
  } else {
    BeginGreeting();
    Flush();
  }
  return absl::OkStatus();
}

void UcxLink::AdmitPeer(const RingOffer& peer) {
  // CheckedAddress has read the same address before.
  const auto hosts = UcxAddressCheck::HostsOf(*OpenBlob(BlobKind::kAddress, peer.address));
  admits_ = true;
  admits_until_ = core_->clock.Now() + core_->admission_time;
  ++core_->links_waiting;
  if (hosts.ok()) core_->admission.Admit(offer_.attachment, *hosts, admits_until_);
}

void UcxLink::EndAdmission() {
  if (!std::exchange(admits_, false)) return;
  --core_->links_waiting;
  core_->admission.Withdraw(offer_.attachment);
}

void UcxLink::BeginGreeting() {
  greets_ = true;
  ++core_->links_unsent;
}

absl::StatusOr<std::string> UcxLink::CheckedAddress(const RingOffer& peer) const {
  SY_RETURN_IF_ERROR(CheckVersion(peer.transport_version));
  const std::optional<absl::string_view> address = OpenBlob(BlobKind::kAddress, peer.address);
  if (!address.has_value()) {
    return TransportError(
        "transport ucx: the peer's address is not valid here; check that both sides run the same "
        "release");
  }
  // The seal shows damage, but anyone can compute it. UCX gets only what the check has packed.
  return core_->ucx->address_check().Rewrite(*address);
}

ucs_status_t UcxLink::MakeEndpoint() {
  const std::string address = std::exchange(peer_address_, {});
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_FLAGS;
  params.flags = UCP_EP_PARAMS_FLAGS_NO_LOOPBACK;
  params.address = reinterpret_cast<const ucp_address_t*>(address.data());
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxLink::OnEndpointError, this};
  const ucs_status_t status = ucp_ep_create(core_->ucx->sender(), &params, &endpoint_);
  if (status != UCS_OK) {
    endpoint_ = nullptr;
    return status;
  }
  lanes_ = LanesOf(endpoint_);
  if (options_.choice == TransportChoice::kTcp && !AllTcp(lanes_)) {
    CloseEndpoint();
    return UCS_ERR_UNSUPPORTED;
  }
  return UCS_OK;
}

absl::Status UcxLink::EndpointError(ucs_status_t status) const {
  if (status == UCS_ERR_UNSUPPORTED) {
    return TransportError(
        absl::StrCat("transport ucx: tcp is required, but UCX uses lanes \"", lanes_, "\""));
  }
  return MakeError(absl::StatusCode::kUnavailable, Reason::kTransport,
                   absl::StrCat("transport ucx: cannot create an endpoint for attachment ",
                                offer_.attachment.value, ": ", ucs_status_string(status),
                                "; check that the peer's host is reachable by tcp"));
}

void UcxLink::ConnectNow() {
  waits_ = false;
  const ucs_status_t made = MakeEndpoint();
  made == UCS_OK ? BeginGreeting() : MarkDown(made);
}

void UcxLink::KeepTimes(TimePoint now) {
  if (waits_ && (greeted_ || now >= connects_by_)) ConnectNow();
  if (greeted_ || now >= admits_until_) EndAdmission();
}

absl::Status UcxLink::ChoosePath(const RingOffer& peer) {
  SY_RETURN_IF_ERROR(memory_->TakeMeeting(peer));
  why_messages_ = memory_->why_messages();
  outbox_ = std::make_unique<UcxOutbox>(memory_->peer_shape(), memory_->outbound(),
                                        memory_->mapped_peer());
  path_ = memory_->mapped_peer() ? LinkPath::kMapped : LinkPath::kMessages;
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
  if (slot >= options_.slots || frame_bytes < kFrameHeaderBytes ||
      frame_bytes > memory_->peer_shape().slot_bytes) {
    return BadSend(offer_.attachment, slot, frame_bytes);
  }
  // Frames keep their order: none is rung while another waits for UCX.
  if (path_ == LinkPath::kMapped && outbox_->empty() && memory_->peer_ring().Ring(slot)) {
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

bool UcxLink::Greet() {
  if (!greets_) return true;
  const ucs_status_t status = SendGreeting(endpoint_, greeting_);
  if (status == UCS_ERR_NO_RESOURCE) return false;
  if (status != UCS_OK) MarkDown(status);
  greets_ = false;
  --core_->links_unsent;
  return status == UCS_OK;
}

bool UcxLink::Flush() {
  bool any = false;
  if (outbox_ == nullptr || failure_ != UCS_OK) return any;
  if (waits_ && !outbox_->empty()) ConnectNow();
  if (endpoint_ == nullptr || !Greet() || outbox_->empty()) return any;
  const ucs_status_t status = outbox_->Flush(endpoint_, &any);
  if (status != UCS_OK) MarkDown(status);
  if (outbox_->empty()) --core_->links_unsent;
  return any;
}

bool UcxLink::TakeDoorbells() {
  bool any = false;
  InboundRing& ring = memory_->ring();
  if (!ring.mapped()) return any;
  for (std::uint32_t i = 0; i < options_.slots; ++i) {
    const std::optional<std::uint32_t> slot = ring.bells().Take();
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
}

void UcxLink::Disconnect() {
  EndAdmission();
  waits_ = false;
  CloseEndpoint();
  if (std::exchange(greets_, false)) --core_->links_unsent;
  if (outbox_ != nullptr && !outbox_->empty()) --core_->links_unsent;
  outbox_.reset();
  path_ = LinkPath::kNone;
}

void UcxLink::Close() {
  if (core_ == nullptr) return;
  // First out of the inbox, so that no frame lands in a ring that is being freed.
  core_->inbox.Remove(offer_.attachment);
  Disconnect();
  if (down_unreported_) --core_->links_down;
  down_unreported_ = false;
  if (!secret_.empty()) core_->ring_server->Withdraw(secret_);  // before the ring is closed
  SetBells(BellState::kClosed);
  core_->memory_thread.Run([memory = std::exchange(memory_, nullptr)] {});
  core_->ring_bytes -= offer_.ring_bytes;
  std::erase(core_->links, this);
  core_ = nullptr;
}

std::string UcxLink::DebugString() const {
  return absl::StrCat("ucx attachment ", offer_.attachment.value, ": out ", LinkPathName(path_),
                      ", in ",
                      memory_ != nullptr && memory_->ring().mapped() ? "mapped" : "messages",
                      ", lanes ", lanes_.empty() ? "none" : lanes_,
                      failure_ == UCS_OK ? "" : absl::StrCat(", ", ucs_status_string(failure_)));
}

}  // namespace switchyard
