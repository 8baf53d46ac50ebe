// The part of EpochBinder that attaches: the memory of the link, the offer, the worker's grant, the
// connection.
#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/source/p2p/epoch_binder.h"
#include "worker/transport/ring_geometry.h"

namespace switchyard {
namespace {

// True for an answer that another attempt at the same plan cannot change.
bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
      return false;  // The worker or the way to it: both may come back.
    default:
      // Stale: the plan was retired while the session opened, and the next one is on its way. With
      // TLS a worker that has nothing of the deployment, such as one that was restarted, says so of
      // no one: to it the session is unknown.
      return ReasonOf(status) != Reason::kStaleEpoch && ReasonOf(status) != Reason::kUnknownSession;
  }
}

// Sizes beyond 32 bits saturate, so that the transport refuses them with their size.
std::uint32_t Bytes32(std::int64_t bytes) {
  return static_cast<std::uint32_t>(
      std::min<std::int64_t>(bytes, std::numeric_limits<std::uint32_t>::max()));
}

// Memory of the tensors' device for the replies of a link. Null where there is none to be had.
std::shared_ptr<DeviceRings> MakeDeviceRings(DeviceBackend* tensors, LinkOptions options) {
  // Frames that travel as messages carry their rows.
  if (tensors == nullptr || options.choice == TransportChoice::kTcp) return nullptr;
  if (!RoundRing(&options).ok()) return nullptr;  // CreateLink says what is wrong
  auto rings = DeviceRings::Make(tensors, RingBytesOf(options));
  return rings.ok() ? *std::move(rings) : nullptr;
}

}  // namespace

Attachment* EpochBinder::FindBySerial(std::uint64_t serial) const {
  // Linear: each attachment has a few events in its whole life.
  for (const std::unique_ptr<Attachment>& attachment : attachments_) {
    if (attachment->serial == serial && attachment->state != Attachment::State::kDown) {
      return attachment.get();
    }
  }
  return nullptr;
}

LinkOptions EpochBinder::LinkOptionsFor(Attachment& attachment) const {
  return {.cookie = options_.grant.cookie,
          .slots = options_.credits,
          .slot_bytes = Bytes32(attachment.slot_bytes.combine),
          .peer_slot_bytes_max = Bytes32(attachment.slot_bytes.dispatch),
          .choice = options_.transport_choice,
          .memory = attachment.memory,
          .owner = static_cast<FrameSink*>(&attachment)};
}

void EpochBinder::StartAttach(Attachment& attachment, TimePoint now) {
  // A new serial: events of the old life must not be taken for this one's.
  attachment.serial = ++last_serial_;
  attachment.state = Attachment::State::kPreparing;
  // The work may end after this binder, so it holds the queue; the transport outlives its work.
  const bool aside = options_.transport->RunAside(
      [transport = options_.transport, options = LinkOptionsFor(attachment),
       tensors = options_.tensors, serial = attachment.serial, events = options_.events] {
        events->Push(MemoryMadeEvent{serial, transport->MakeMemory(options),
                                     MakeDeviceRings(tensors.get(), options)});
      });
  if (aside) return;
  attachment.rings_ahead = MakeDeviceRings(options_.tensors.get(), LinkOptionsFor(attachment));
  SendAttach(attachment, now);
}

void EpochBinder::OnMemoryMade(MemoryMadeEvent event, TimePoint now) {
  Attachment* attachment = FindBySerial(event.serial);
  if (attachment != nullptr && !Uses(current_.get(), *attachment) &&
      !Uses(next_.get(), *attachment)) {
    // The plan that needed it was overtaken; another that does will begin anew.
    attachment->state = Attachment::State::kDown;
    attachment = nullptr;
  }
  if (attachment == nullptr) {
    // Back to where it was made, because freeing it takes as long.
    options_.transport->RunAside(
        [memory = std::move(event.memory), rings = std::move(event.device_rings)] {});
    return;
  }
  attachment->memory = std::move(event.memory);
  attachment->rings_ahead = std::move(event.device_rings);
  SendAttach(*attachment, now);
}

void EpochBinder::SendAttach(Attachment& attachment, TimePoint now) {
  // For the epoch in use, so that its steps can go on; where the worker has retired that epoch, for
  // the coming one, which cannot be switched to without this attachment.
  const bool retired = ReasonOf(attachment.down_why) == Reason::kStaleEpoch;
  const bool coming =
      Uses(next_.get(), attachment) && (retired || !Uses(current_.get(), attachment));
  const BoundPlan& bound = coming ? *next_ : *current_;
  absl::StatusOr<std::unique_ptr<Link>> link =
      options_.transport->CreateLink(LinkOptionsFor(attachment));
  if (!link.ok()) {
    // No link has it, which would free it aside.
    options_.transport->RunAside([memory = std::move(attachment.memory)] {});
    Lose(attachment, link.status(), now);
    return;
  }
  // Before the stream, whose answer may be faster than the return of Attach.
  attachment.state = Attachment::State::kAttaching;
  attachment.link = *std::move(link);
  attachment.credits = CreditTable(options_.credits);
  attachment.sink = std::make_unique<AttachEvents>(attachment.serial, options_.events.get());
  AttachRequest request;
  request.session = options_.grant.session;
  request.cookie = options_.grant.cookie;
  request.deployment = bound.plan.deployment;
  request.phase = options_.grant.request.phase;
  request.mode = options_.grant.request.mode.value_or(DispatchMode::kNormal);
  request.epoch = bound.plan.epoch;
  request.hash = bound.hash;
  request.transport = options_.transport_choice;
  request.reply_ring = attachment.link->offer();
  if (attachment.rings_ahead != nullptr) attachment.rings_ahead->Offer(&request.reply_ring);
  request.request_slot_bytes = Bytes32(attachment.slot_bytes.dispatch);
  request.record_amax = options_.grant.request.record_amax;
  request.step_deadline = step_deadline_;
  request.max_tokens = options_.grant.request.max_tokens;
  request.signature = options_.grant.signature;
  attachment.attach_epoch = request.epoch;
  attachment.stream =
      options_.channel->Attach(attachment.worker.endpoint, request, attachment.sink.get());
}

absl::Status EpochBinder::CheckAttachGrant(const Attachment& attachment,
                                           const AttachGrant& grant) const {
  if (grant.request_ring.incarnation != attachment.worker.incarnation) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kIncarnation,
                     absl::StrFormat("worker %s is another incarnation than the plan's: it was "
                                     "restarted; wait for the next epoch",
                                     attachment.worker.id),
                     {{"worker", attachment.worker.id}});
  }
  if (grant.request_ring.slots < options_.credits ||
      grant.request_ring.slot_bytes < attachment.slot_bytes.dispatch) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     absl::StrFormat("worker %s offers %d slots of %d bytes; %d of %d are needed",
                                     attachment.worker.id, grant.request_ring.slots,
                                     grant.request_ring.slot_bytes, options_.credits,
                                     attachment.slot_bytes.dispatch),
                     {{"worker", attachment.worker.id}});
  }
  return absl::OkStatus();
}

void EpochBinder::OnAttached(const AttachedEvent& event, TimePoint now) {
  Attachment* attachment = FindBySerial(event.serial);
  if (attachment == nullptr || attachment->state != Attachment::State::kAttaching) return;
  if (const absl::Status good = CheckAttachGrant(*attachment, event.grant); !good.ok()) {
    LoseAttaching(*attachment, good, now);
    return;
  }
  attachment->grant = event.grant;
  // A worker that grants twice is not heard again: the first ring may be in use by then.
  attachment->state = Attachment::State::kConnecting;
  if (attachment->memory == nullptr) {
    DeviceRings* const rings = attachment->rings_ahead.get();
    ConnectLink(*attachment,
                rings == nullptr ? absl::OkStatus()
                                 : rings->Meet(options_.tensors.get(), event.grant.request_ring),
                now);
    return;
  }
  options_.transport->RunAside([memory = attachment->memory, rings = attachment->rings_ahead,
                                tensors = options_.tensors, peer = event.grant.request_ring,
                                serial = event.serial, events = options_.events] {
    memory->Meet(peer);
    PeerMetEvent met{serial};
    if (rings != nullptr) met.device_rings = rings->Meet(tensors.get(), peer);
    events->Push(std::move(met));
  });
}

void EpochBinder::OnPeerMet(const PeerMetEvent& event, TimePoint now) {
  Attachment* attachment = FindBySerial(event.serial);
  if (attachment == nullptr || attachment->state != Attachment::State::kConnecting) return;
  ConnectLink(*attachment, event.device_rings, now);
}

void EpochBinder::LetDeviceReach(Attachment& attachment, const AttachGrant& grant,
                                 const absl::Status& met) {
  attachment.why_no_device = grant.why_no_device;
  if (attachment.rings_ahead != nullptr) {
    const LinkPath path = attachment.link->path();
    const bool in_place = path == LinkPath::kMapped || path == LinkPath::kInProcess;
    std::shared_ptr<DeviceRings> rings = std::exchange(attachment.rings_ahead, nullptr);
    if (in_place && met.ok()) {
      attachment.device_rings = std::move(rings);
      return;
    }
    if (in_place && attachment.why_no_device.empty()) {
      attachment.why_no_device = std::string(met.message());
    }
    options_.transport->RunAside([freed = std::move(rings)] {});
  }
  if (options_.tensors == nullptr) return;
  attachment.inbound_mapping = options_.tensors->MapHost(attachment.link->inbound_memory());
  attachment.outbound_mapping = options_.tensors->MapHost(attachment.link->outbound_memory());
}

void EpochBinder::ConnectLink(Attachment& attachment, const absl::Status& rings_met,
                              TimePoint now) {
  const AttachGrant grant = std::exchange(attachment.grant, {});
  attachment.memory = nullptr;  // the link's alone, which frees it aside
  if (const absl::Status connected = attachment.link->Connect(grant.request_ring);
      !connected.ok()) {
    LoseAttaching(attachment, connected, now);
    return;
  }
  LetDeviceReach(attachment, grant, rings_met);
  attachment.state = Attachment::State::kReady;
  // Only now: a worker that grants and cannot be connected to must not be asked without a pause.
  attachment.backoff = {};
  attachment.peer_attachment = grant.request_ring.attachment;
  attachment.reply_path = grant.path;
  attachment.why_reply_messages = grant.why_messages;
  // Attached for the coming epoch because the worker has retired the current one: steps of the
  // current one must not send to it.
  if (current_ != nullptr && current_->plan.epoch < attachment.attach_epoch) {
    if (const auto ordinal = current_->OrdinalOf(attachment)) current_->confirmed[*ordinal] = false;
  }
  MarkBound(attachment, attachment.attach_epoch);
  BindNewer(attachment, attachment.attach_epoch);
  // The plan it was attached for was overtaken meanwhile: release it, or the worker keeps its
  // memory.
  if (!Knows(attachment.attach_epoch)) attachment.stream->Release({attachment.attach_epoch});
}

void EpochBinder::LoseAttaching(Attachment& attachment, const absl::Status& why, TimePoint now) {
  // Only while the session opens: later the current plan serves, and a newer one may mend this.
  if (current_ == nullptr && IsFinal(why)) fatal_ = why;
  Lose(attachment, why, now);
}

void EpochBinder::OnAttachEnded(const AttachEndedEvent& event, TimePoint now) {
  Attachment* attachment = FindBySerial(event.serial);
  if (attachment == nullptr) return;
  // A refusal, unless the worker had granted: then it is a loss, which a retry may mend.
  if (attachment->state == Attachment::State::kAttaching) {
    LoseAttaching(*attachment, event.why, now);
  } else {
    Lose(*attachment, event.why, now);
  }
}

}  // namespace switchyard
