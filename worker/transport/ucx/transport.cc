#include "worker/transport/ucx/transport.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <cstring>
#include <utility>

#include "core/base/status_macros.h"
#include "worker/transport/ring_geometry.h"
#include "worker/transport/ucx/link.h"

namespace switchyard {
namespace {

// UCX calls in one Progress. The bound keeps a long stream of pieces from holding the caller's
// mutex.
constexpr int kProgressRounds = 64;
// Calls of Work under load without progress of all of UCX. It bounds the delay until a message of
// another link arrives and until a peer's death is reported.
constexpr int kBusyRoundsMax = 16;

}  // namespace

absl::StatusOr<std::unique_ptr<Transport>> UcxTransport::Create(const UcxOptions& options) {
  std::unique_ptr<UcxTransport> transport(new UcxTransport);
  SY_RETURN_IF_ERROR(transport->Init(options));
  return transport;
}

absl::Status UcxTransport::Init(const UcxOptions& options) {
  SY_RETURN_IF_ERROR(CheckSocketDirectory(options.ring_dir));
  core_.place.ring_dir = options.ring_dir;
  core_.incarnation = options.incarnation;
  SY_ASSIGN_OR_RETURN(core_.ucx, UcxContext::Create(options.context));

  SY_ASSIGN_OR_RETURN(core_.admission, UcxAdmission::Create(core_.ucx->sender_listeners()));
  core_.admission_time = options.admission;
  SY_RETURN_IF_ERROR(SetUp(core_.ucx->receiver(), core_.ucx->receiver_listeners()));
  SY_ASSIGN_OR_RETURN(sleeper_, Sleeper::Create({core_.ucx->receiver_fd(), core_.ucx->sender_fd(),
                                                 core_.admission.event_fd()},
                                                options.busy_poll));
  core_.place.peer_wake = sleeper_->peer_wake();
  return absl::OkStatus();
}

absl::Status UcxTransport::SetUp(ucp_worker_h receiver, std::span<const UcxListener> listeners) {
  ucp_am_handler_param_t handler{};
  handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                       UCP_AM_HANDLER_PARAM_FIELD_ARG;
  handler.id = kFrameMessageId;
  handler.cb = &UcxTransport::OnMessage;
  handler.arg = this;
  const ucs_status_t status = ucp_worker_set_am_recv_handler(receiver, &handler);
  if (status != UCS_OK) return UcxError("setting the message handler", status);
  return core_.admission.Add(listeners);
}

absl::Status UcxTransport::KeepListening() {
  if (core_.admission.Listens(core_.ucx->receiver_listeners())) return absl::OkStatus();
  core_.admission.ForgetClosed();
  SY_RETURN_IF_ERROR(core_.ucx->ReplaceReceiver(
      [this](ucp_worker_h receiver, std::span<const UcxListener> listeners) {
        return SetUp(receiver, listeners);
      }));
  // Whoever sleeps now still watches the former receivers, and the new one has no link so far.
  sleeper_->SetWorkFd(0, core_.ucx->receiver_fd());
  return absl::OkStatus();
}

UcxTransport::~UcxTransport() {
  core_.memory_thread.Stop();  // its work uses this object
  // Close removes the link from the list.
  while (!core_.links.empty()) core_.links.back()->Close();
  core_.admission.ForgetClosed();
}

absl::StatusOr<std::unique_ptr<Link>> UcxTransport::CreateLink(const LinkOptions& options) {
  SY_RETURN_IF_ERROR(KeepListening());
  return UcxLink::Create(&core_, options);
}

std::shared_ptr<LinkMemory> UcxTransport::MakeMemory(const LinkOptions& options) const {
  LinkOptions rounded = options;
  // CreateLink says what is wrong with them.
  if (!RoundRing(&rounded).ok() || options.choice == TransportChoice::kInProcess) return nullptr;
  return std::make_shared<UcxLinkMemory>(core_.place, rounded);
}

// A doorbell is only a header; a piece is a longer header with data; a greeting a shorter one
// without. Any other message is dropped.
ucs_status_t UcxTransport::OnMessage(void* self, const void* header, std::size_t header_bytes,
                                     void* data, std::size_t data_bytes,
                                     const ucp_am_recv_param_t* param) {
  Inbox& inbox = static_cast<UcxTransport*>(self)->core_.inbox;
  const std::span bytes(static_cast<const std::byte*>(header), header_bytes);
  if ((param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) {
    // Our senders never use rendezvous. To refuse one, it is enough not to fetch its data.
    inbox.CountDrop(FrameDrop::kLength);
  } else if (header_bytes == kFrameHeaderBytes) {
    data_bytes == 0 ? inbox.OnDoorbell(bytes) : inbox.CountDrop(FrameDrop::kLength);
  } else if (header_bytes == kPieceHeaderBytes) {
    std::uint32_t offset = 0;
    std::memcpy(&offset, bytes.data() + kFrameHeaderBytes, sizeof(offset));
    inbox.OnPiece(bytes.first(kFrameHeaderBytes), offset,
                  {static_cast<const std::byte*>(data), data_bytes});
  } else if (header_bytes == kGreetingBytes && data_bytes == 0) {
    Link* link = inbox.OnGreeting(bytes);
    if (link != nullptr) static_cast<UcxLink*>(link)->OnGreeting();
  } else {
    inbox.CountDrop(FrameDrop::kTruncated);
  }
  return UCS_OK;
}

bool UcxTransport::ReportLinksDown(FrameSink& sink) {
  bool any = false;
  while (core_.links_down > 0) {
    // The sink may close any link, which invalidates the iteration, so start again after each.
    for (UcxLink* link : core_.links) {
      absl::Status why;
      if (!link->TakeDown(&why)) continue;
      sink.OnLinkDown(*link, why);
      any = true;
      break;
    }
  }
  return any;
}

bool UcxTransport::TakeDoorbells() {
  bool any = false;
  for (UcxLink* link : core_.links) any = link->TakeDoorbells() || any;
  return any;
}

void UcxTransport::SetBells(BellState state) {
  bells_wake_ = state == BellState::kAsleep;
  for (UcxLink* link : core_.links) link->SetBells(state);
}

bool UcxTransport::Receive() {
  bool any = false;
  for (int i = 0; i < kProgressRounds; ++i) {
    unsigned progressed = 0;
    core_.ucx->ForEachReceiver(
        [&](ucp_worker_h receiver) { progressed += ucp_worker_progress(receiver); });
    if (progressed == 0) break;
    any = true;
    if (core_.inbox.HasReady()) break;
  }
  return any;
}

bool UcxTransport::Send() {
  bool any = false;
  for (int i = 0; i < kProgressRounds; ++i) {
    if (ucp_worker_progress(core_.ucx->sender()) == 0) break;
    any = true;
  }
  if (core_.links_unsent > 0) {
    for (UcxLink* link : core_.links) any = link->Flush() || any;
  }
  return any;
}

// Doorbells go first and cost least: UCX asks the kernel each time. The receiver is progressed if
// there were none, the sender if nothing has arrived at all. Both are if frames wait for UCX, and
// every kBusyRoundsMax calls under load; otherwise messages and a peer's death would come late.
bool UcxTransport::Work() {
  // While any thread sleeps, peers go on waking it: this one may not stay.
  if (bells_wake_ && !sleeper_->armed()) SetBells(BellState::kAwake);
  const bool all = core_.links_unsent > 0 || ++busy_rounds_ >= kBusyRoundsMax;
  bool any = TakeDoorbells();
  if (any && !all) return any;
  any = Receive() || any;
  if (any && !all) return any;
  busy_rounds_ = 0;
  return Send() || any;
}

bool UcxTransport::Accept() {
  const auto accepted = core_.admission.Accept();
  if (accepted == UcxAdmission::Accepted::kLater) {
    core_.ucx->ForEachReceiver([](ucp_worker_h receiver) { ucp_worker_progress(receiver); });
    ucp_worker_progress(core_.ucx->sender());
  }
  return accepted != UcxAdmission::Accepted::kNone;
}

void UcxTransport::KeepTimes() {
  const TimePoint now = core_.clock.Now();
  core_.admission.Expire(now);
  if (core_.links_waiting == 0) return;
  for (UcxLink* link : core_.links) link->KeepTimes(now);
}

bool UcxTransport::Progress(FrameSink& sink) {
  if (core_.admission.pending() || core_.links_waiting > 0) {
    KeepTimes();
    Accept();
  }
  const bool worked = Work();
  // Frames that arrived before a peer died are still delivered, so links go down after Deliver.
  const bool delivered = core_.inbox.Deliver(sink);
  const bool reported = ReportLinksDown(sink);
  if (sleeper_->TakeTimeout() && (reported || delivered)) ++late_wakes_;
  return worked || reported || delivered;
}

bool UcxTransport::ArmAll() {
  SetBells(BellState::kAsleep);
  if (std::ranges::any_of(core_.links, &UcxLink::rung)) return false;
  // After any other failure than "busy" the sleep still ends, by its timeout.
  bool busy = false;
  core_.ucx->ForEachReceiver(
      [&](ucp_worker_h receiver) { busy = busy || ucp_worker_arm(receiver) == UCS_ERR_BUSY; });
  return !busy && ucp_worker_arm(core_.ucx->sender()) != UCS_ERR_BUSY;
}

bool UcxTransport::Arm() {
  if (core_.inbox.HasReady() || core_.links_down > 0) return false;
  // Before anything is armed, because peers signal what is.
  if (sleeper_->BusyPolls(core_.inbox.frames_in() + core_.frames_out)) return false;
  // Connections that came when nobody was to be admitted any more would end each sleep.
  if (Accept()) return false;
  // The sleeper first: it takes the wake-ups of peers, whose doorbells ArmAll then sees.
  if (!sleeper_->Arm()) return false;
  if (ArmAll()) return true;
  sleeper_->Disarm();
  return false;
}

std::string UcxTransport::library() const { return absl::StrCat("UCX ", UcxVersion()); }

std::vector<std::string> UcxTransport::hosts() const {
  std::vector<std::string> hosts;
  const auto packed = UcxAddressCheck::HostsOf(core_.ucx->address());
  if (!packed.ok()) return hosts;
  for (const std::string& host : *packed) {
    std::array<char, INET6_ADDRSTRLEN> text{};
    const int family = host.size() == sizeof(in_addr) ? AF_INET : AF_INET6;
    if (::inet_ntop(family, host.data(), text.data(), text.size()) != nullptr) {
      hosts.emplace_back(text.data());
    }
  }
  return hosts;
}

TransportStats UcxTransport::stats() const {
  TransportStats stats;
  stats.drops = core_.inbox.drops();
  stats.frames_in = core_.inbox.frames_in();
  stats.frames_out = core_.frames_out;
  stats.late_wakes = late_wakes_;
  stats.links_open = core_.links.size();
  stats.ring_bytes = core_.ring_bytes;
  return stats;
}

}  // namespace switchyard
