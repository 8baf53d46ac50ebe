// What peers send to a worker, given to the code that serves it: Attach and Bind to the expert
// engine, frames to engine and inbox, ring offers to the transports, Forward to the source's
// checks.
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/protocol_version.h"
#include "services/convert/attach.h"
#include "services/convert/step.h"
#include "tests/fuzz/messages.h"
#include "tests/fuzz/promise.h"
#include "tests/fuzz/targets.h"
#include "tests/worker/expert/epoch_testing.h"
#include "tests/worker/expert/source_testing.h"
#include "worker/expert/expert_engine.h"
#include "worker/routing/chunk_plan.h"
#include "worker/source/step_validation.h"
#include "worker/transport/inbox.h"
#include "worker/transport/loopback/transport.h"
#include "worker/transport/ring_exchange.h"
#include "worker/transport/ring_geometry.h"
#include "worker/transport/sealed_blob.h"
#include "worker/transport/ucx/address.h"

namespace switchyard::fuzz {
namespace {

using testing::FakeDevice;
using testing::kSourceIncarnation;
using testing::MakeAttachRequest;
using testing::MakePlan;

constexpr std::uint64_t kBytesMax = 16U << 20;
constexpr std::uint32_t kSlots = 2;
constexpr std::uint32_t kSlotBytes = 4096;
constexpr int kPollsMax = 100;

class Nobody final : public FrameSink {
 public:
  void OnFrame(Link& /*link*/, const HeaderBytes& /*raw*/, const FrameHeader& header,
               std::span<const std::byte> payload) override {
    Check(payload.size() == header.payload_bytes, "a frame has the payload that its header says");
    ++frames;
  }
  void OnLinkDown(Link& /*link*/, const absl::Status& /*why*/) override {}

  std::uint64_t frames = 0;
};

// Staged once: experts and plan are the same for every input.
struct Model {
  FakeDevice device;
  Plan plan = MakePlan(1, 2);
  StagedEpoch staged = testing::MakeStaged(1, plan, &device);
};

Model& TheModel() {
  static auto* const model = new Model;
  return *model;
}

// A worker's engine and a peer's transport in one process.
class Worker {
 public:
  Worker()
      : worker_(MakeSide(testing::IncarnationOf(1))),
        peer_(MakeSide(kSourceIncarnation)),
        engine_(Options(), worker_.get(), *ExpertStreams::Create(&TheModel().device, {})) {
    engine_.Activate({.runtime = TheModel().staged.runtime, .memory = TheModel().staged.memory});
  }

  ExpertEngine& engine() { return engine_; }
  Transport& peer() { return *peer_; }
  [[nodiscard]] std::uint64_t ring_bytes() const { return worker_->stats().ring_bytes; }

  std::unique_ptr<Link> MakePeerLink(Cookie cookie) {
    return *peer_->CreateLink({.cookie = cookie, .slots = kSlots, .slot_bytes = kSlotBytes});
  }
  // Until nothing is left to do.
  void Run() {
    int polls = 0;
    bool worked = true;
    while (worked && polls < kPollsMax) {
      worked = engine_.Poll(now_);
      worked = peer_->Progress(sink_) || worked;
      now_ += std::chrono::milliseconds(1);
      ++polls;
    }
    Check(polls < kPollsMax, "the engine comes to rest");
  }

 private:
  std::unique_ptr<Transport> MakeSide(const Incarnation& incarnation) {
    return *LoopbackTransport::Create({.incarnation = incarnation, .hub = &hub_});
  }
  static ExpertEngineOptions Options() {
    ExpertEngineOptions options;
    options.identity = {.worker_id = "w1", .incarnation = testing::IncarnationOf(1)};
    options.attachments_max = 8;
    options.attachment_bytes_max = kBytesMax;
    return options;
  }

  LoopbackHub hub_;
  Nobody sink_;
  std::unique_ptr<Transport> worker_;
  std::unique_ptr<Transport> peer_;
  ExpertEngine engine_;
  TimePoint now_{std::chrono::seconds(1)};
};

void CheckRefusal(const absl::Status& status) {
  if (status.ok()) return;
  Check(ReasonOf(status) != Reason::kUnspecified, "a refusal has its reason");
  Check(ReasonOf(status) != Reason::kInternal, "a peer's message is never this side's bug");
}

// Bits of Message::what in FuzzAttach.
constexpr std::uint8_t kOfThePlan = 1;  // the request names the committed epoch
constexpr std::uint8_t kOfTheLink = 2;  // the reply ring exists
constexpr std::uint8_t kAllOfTheLink = 4;
constexpr std::uint8_t kClose = 8;
constexpr std::uint8_t kOwnVersion = 16;  // keeps the version that the input has
constexpr std::uint8_t kOwnSignature =
    32;  // and the signature; else the coordinator has granted it

void Serve(Worker& worker, const AttachMessage& message, std::uint8_t what, const Link& ring,
           std::vector<AttachmentId>* open) {
  const AttachRequest good = MakeAttachRequest(TheModel().plan, DispatchMode::kNormal);
  if (const auto* attach = std::get_if<AttachRequest>(&message)) {
    AttachRequest request = *attach;
    if ((what & kOfThePlan) != 0) {
      request.deployment = good.deployment;
      request.epoch = good.epoch;
      request.hash = good.hash;
      request.max_tokens = good.max_tokens;  // enough for the slots of the link
    }
    if ((what & kOfTheLink) != 0) {
      request.reply_ring.transport = ring.offer().transport;
      request.reply_ring.frame_version = ring.offer().frame_version;
      request.reply_ring.address = ring.offer().address;
      request.reply_ring.attachment = ring.offer().attachment;
    }
    if ((what & kAllOfTheLink) != 0) request.reply_ring = ring.offer();
    if ((what & kOwnSignature) == 0) request = testing::Signed(std::move(request));
    const absl::StatusOr<AttachGrant> grant = worker.engine().Attach(request);
    CheckRefusal(grant.status());
    Check(!grant.ok() || (what & kOwnSignature) == 0, "nobody attaches without a signed grant");
    if (grant.ok()) open->push_back(grant->request_ring.attachment);
  } else if (const auto* bind = std::get_if<BindRequest>(&message)) {
    BindRequest request = *bind;
    if ((what & kOfThePlan) != 0) request = {good.epoch, good.hash};
    CheckRefusal(worker.engine().Bind(open->empty() ? AttachmentId{7} : open->back(), request));
  } else if (const auto* release = std::get_if<ReleaseRequest>(&message)) {
    ReleaseRequest request = *release;
    if ((what & kOfThePlan) != 0) request = {good.epoch};
    CheckRefusal(worker.engine().Release(open->empty() ? AttachmentId{7} : open->back(), request));
  }
  if ((what & kClose) != 0 && !open->empty()) {
    worker.engine().Close(open->back());
    open->pop_back();
  }
}

// Bits of Message::what in FuzzFrames and FuzzInbox: fields that are made right, so that what comes
// after them is reached.
constexpr std::uint8_t kRightStart = 1;    // magic, version, kind, mode, format
constexpr std::uint8_t kRightIds = 2;      // attachment, cookie, incarnation
constexpr std::uint8_t kRightEpoch = 4;    // epoch, layer
constexpr std::uint8_t kRightSlots = 8;    // both slots
constexpr std::uint8_t kRightLength = 16;  // few rows, and a payload of their length
constexpr std::uint8_t kRightCrc = 32;
constexpr std::uint8_t kOtherSession = 64;  // FuzzFrames: low_latency
constexpr std::uint8_t kRung = 64;          // FuzzInbox: by its slot, in a mapped ring

// The frame in `bytes`, padded to a slot, with what `what` says made right.
std::vector<std::byte> FrameOf(const Message& message, const RingOffer& to, Cookie cookie,
                               DispatchMode mode) {
  std::vector<std::byte> frame(kSlotBytes, std::byte{0});
  std::memcpy(frame.data(), message.bytes.data(), std::min(message.bytes.size(), frame.size()));
  const std::span<const std::byte> raw = std::span(frame).first(kFrameHeaderBytes);
  FrameHeader header;
  if ((message.what & kRightStart) != 0) {
    FrameHeader right;
    right.mode = mode;
    HeaderBytes start;
    EncodeHeader(right, {}, &start);
    std::memcpy(frame.data(), start.data(), 8);
  }
  if (DecodeHeader(raw, &header) != FrameDrop::kNone) return frame;
  if ((message.what & kRightIds) != 0) {
    header.attachment = to.attachment;
    header.cookie = cookie;
    header.source_incarnation = static_cast<std::uint32_t>(kSourceIncarnation.low);
  }
  if ((message.what & kRightEpoch) != 0) {
    header.epoch = Epoch{1};
    header.layer = LayerId{header.layer.value & 1};
  }
  if ((message.what & kRightSlots) != 0) {
    header.request_slot = header.request_slot % kSlots;
    header.reply_slot = header.request_slot;
  }
  if ((message.what & kRightLength) != 0) header.rows %= 8;
  const LayerRuntime* layer = TheModel().staged.runtime->FindLayer(header.layer);
  const MoeShape& shape = TheModel().plan.shape;
  const FrameLayout layout =
      LayoutOfRequest({.mode = header.mode,
                       .format = header.format,
                       .rows = header.rows,
                       .hidden = shape.hidden,
                       .top_k = shape.top_k,
                       .local_slots = layer == nullptr ? 0 : layer->local_slots()});
  if ((message.what & kRightLength) != 0) header.payload_bytes = layout.payload_bytes();
  const std::span<const std::byte> payload = std::span(frame).subspan(kFrameHeaderBytes);
  const std::size_t metadata = std::min(layout.metadata_bytes, payload.size());
  HeaderBytes encoded;
  EncodeHeader(header, payload.first(metadata), &encoded);
  // Only the whole header has a right CRC; without that bit the input's own stays.
  const std::size_t kept = (message.what & kRightCrc) != 0 ? 64 : 60;
  std::memcpy(frame.data(), encoded.data(), kept);
  return frame;
}

// Two addresses of UCX 1.13 on one host: a receiver's and a sender's, on interface lo.
std::string UcxAddress(char worker, char port) {
  std::string address(
      "\x20"
      "wwwwwwww\x20\x92\x01\x02hosthost\0\0\0\0\0\0\0\0\xcf\x19\x17\xb7\x51\x38\x53\x9e\x3e\x4b\xd7"
      "\xe0\x37\x37\x01\x13\x23\0\x82pp",
      50);
  std::fill_n(address.begin() + 1, 8, worker);
  address[49] = port;
  return address;
}

const UcxAddressCheck& TheAddressCheck() {
  static const auto* const check = [] {
    auto made = UcxAddressCheck::Create(UcxAddress('r', '1'), UcxAddress('s', '2'));
    Check(made.ok(), "the pattern is an address");
    return new UcxAddressCheck(*std::move(made));
  }();
  return *check;
}

}  // namespace

void FuzzAttach(absl::string_view input) {
  Worker worker;
  const std::unique_ptr<Link> ring = worker.MakePeerLink(Cookie{5});
  std::vector<AttachmentId> open;
  Messages messages(input);
  for (Message message; messages.Next(&message);) {
    v1::AttachRequest proto;
    if (!proto.ParseFromArray(message.bytes.data(), static_cast<int>(message.bytes.size()))) {
      continue;
    }
    if (proto.has_open() && (message.what & kOwnVersion) == 0) {
      proto.mutable_open()->mutable_reply_ring()->set_protocol_version(kProtocolVersion);
    }
    const absl::StatusOr<AttachMessage> decoded = FromProto(proto);
    CheckRefusal(decoded.status());
    if (decoded.ok()) Serve(worker, *decoded, message.what, *ring, &open);
    Check(worker.ring_bytes() <= kBytesMax, "rings stay within the limit");
    worker.Run();
  }
}

void FuzzFrames(absl::string_view input) {
  Worker worker;
  struct Session {
    std::unique_ptr<Link> link;
    Cookie cookie;
    RingOffer offer;
    DispatchMode mode;
  };
  std::vector<Session> sessions;
  for (const DispatchMode mode : {DispatchMode::kNormal, DispatchMode::kLowLatency}) {
    AttachRequest request = MakeAttachRequest(TheModel().plan, mode, 1 + sessions.size());
    Session session{worker.MakePeerLink(request.cookie), request.cookie, {}, mode};
    request.reply_ring = session.link->offer();
    const absl::StatusOr<AttachGrant> grant = worker.engine().Attach(request);
    Check(grant.ok() && session.link->Connect(grant->request_ring).ok(), "a good source attaches");
    session.offer = grant->request_ring;
    sessions.push_back(std::move(session));
  }
  Messages messages(input);
  for (Message message; messages.Next(&message);) {
    Session& session = sessions[(message.what & kOtherSession) != 0 ? 1 : 0];
    const std::vector<std::byte> frame =
        FrameOf(message, session.offer, session.cookie, session.mode);
    const std::uint32_t slot = message.bytes.size() % kSlots;
    std::memcpy(session.link->OutboundSlot(slot).data(), frame.data(), frame.size());
    Check(session.link->Send(slot, frame.size()).ok(), "no frame breaks the link");
    worker.Run();
  }
  Check(worker.engine().stats().attachments == sessions.size(), "no frame closes an attachment");
}

void FuzzInbox(absl::string_view input) {
  std::vector<std::byte> memory(std::size_t{kSlots} * kSlotBytes);
  Inbox inbox;
  LoopbackHub hub;
  const auto side = *LoopbackTransport::Create({.incarnation = kSourceIncarnation, .hub = &hub});
  const std::unique_ptr<Link> link = *side->CreateLink({.slots = kSlots, .slot_bytes = kSlotBytes});
  const bool mapped = !input.empty() && (input[0] & 1) != 0;
  RingOffer offer;
  offer.attachment = inbox.Add(link.get(), {.cookie = Cookie{5},
                                            .slots = kSlots,
                                            .slot_bytes = kSlotBytes,
                                            .memory = memory,
                                            .mapped = mapped});
  Nobody sink;
  std::uint64_t given = 0;
  Messages messages(input.substr(input.empty() ? 0 : 1));
  for (Message message; messages.Next(&message); ++given) {
    const std::vector<std::byte> frame = FrameOf(message, offer, Cookie{5}, DispatchMode::kNormal);
    const std::size_t header = std::min(message.bytes.size(), kFrameHeaderBytes);
    const std::span<const std::byte> bytes = std::span(frame).first(header);
    if (mapped && (message.what & kRung) != 0) {
      const auto slot = static_cast<std::uint32_t>(message.bytes.size() % (kSlots + 1));
      if (slot < kSlots) std::memcpy(&memory[slot * kSlotBytes], frame.data(), frame.size());
      inbox.OnRung(offer.attachment, slot);
    } else if (message.bytes.size() == kGreetingBytes) {
      Link* greeted = inbox.OnGreeting(bytes);
      Check(greeted == nullptr || greeted == link.get(), "a greeting finds its own link");
      // The last two bytes place a piece; fewer make a doorbell.
    } else if (message.bytes.size() < kFrameHeaderBytes + 2) {
      inbox.OnDoorbell(bytes);
    } else {
      const absl::string_view tail = message.bytes.substr(message.bytes.size() - 2);
      const auto offset = static_cast<std::uint32_t>(static_cast<std::uint8_t>(tail[0]) * 16);
      const auto length = static_cast<std::size_t>(static_cast<std::uint8_t>(tail[1]) * 16);
      inbox.OnPiece(bytes, offset, std::span(frame).first(std::min(length, frame.size())));
    }
    if ((message.what & 0x80) != 0) inbox.Deliver(sink);
  }
  inbox.Deliver(sink);
  Check(sink.frames == inbox.frames_in() && sink.frames <= given, "a message is one frame at most");
}

void FuzzRingOffer(absl::string_view input) {
  Messages messages(input);
  for (Message message; messages.Next(&message);) {
    v1::AttachRequest proto =
        ToProto(AttachMessage(MakeAttachRequest(TheModel().plan, DispatchMode::kNormal)));
    v1::RingOffer* ring = proto.mutable_open()->mutable_reply_ring();
    if (!ring->ParseFromArray(message.bytes.data(), static_cast<int>(message.bytes.size()))) {
      continue;
    }
    if ((message.what & kOwnVersion) == 0) ring->set_protocol_version(kProtocolVersion);
    const absl::StatusOr<AttachMessage> decoded = FromProto(proto);
    CheckRefusal(decoded.status());
    if (!decoded.ok()) continue;
    const RingOffer& offer = std::get<AttachRequest>(*decoded).reply_ring;
    CheckRefusal(CheckPeerOffer({.slots = kSlots, .slot_bytes = kSlotBytes}, offer, "ucx"));
    // The address as it is, and as someone seals it who can compute a CRC.
    for (const std::string& sealed : {offer.address, SealBlob(BlobKind::kAddress, offer.address)}) {
      const std::optional<absl::string_view> opened = OpenBlob(BlobKind::kAddress, sealed);
      if (!opened.has_value()) continue;
      const absl::StatusOr<std::string> rewritten = TheAddressCheck().Rewrite(*opened);
      CheckRefusal(rewritten.status());
      if (!rewritten.ok()) continue;
      const absl::StatusOr<std::string> again = TheAddressCheck().Rewrite(*rewritten);
      Check(again.ok() && *again == *rewritten, "what the check packs, it accepts");
      Check(rewritten->size() <= opened->size(), "the check adds nothing");
    }
    for (const std::string& key : {offer.rkey, SealBlob(BlobKind::kRingKey, offer.rkey)}) {
      const absl::StatusOr<RingKey> opened = OpenRingKey(key);
      CheckRefusal(opened.status());
      if (!opened.ok()) continue;
      const auto visit = RingVisit::Make(*opened, "");
      Check(!visit.ok(), "nobody listens under a name that nobody has drawn");
      CheckRefusal(visit.status());
    }
  }
}

void FuzzForward(absl::string_view input) {
  const Plan& plan = TheModel().plan;
  const PlacementMap placement(plan.layers[0], plan.shape.experts,
                               static_cast<std::int32_t>(plan.workers.size()));
  Messages messages(input);
  for (Message message; messages.Next(&message);) {
    v1::ForwardRequest proto;
    if (!proto.ParseFromArray(message.bytes.data(), static_cast<int>(message.bytes.size()))) {
      continue;
    }
    const absl::StatusOr<ForwardMessage> decoded = FromProto(proto);
    CheckRefusal(decoded.status());
    const auto* received = decoded.ok() ? std::get_if<ReceivedStep>(&*decoded) : nullptr;
    if (received == nullptr) continue;
    const GatewayStep& step = received->step;
    Check(step.tokens >= 0 && step.ids.size() == step.weights.size(), "tables have one shape");
    // As services/worker/forward_stream.cc, before it makes room for y.
    const auto tokens = static_cast<std::size_t>(step.tokens);
    const auto hidden = static_cast<std::size_t>(plan.shape.hidden);
    if (step.x.size() != tokens * hidden * sizeof(Bf16) ||
        step.ids.size() != tokens * static_cast<std::size_t>(plan.shape.top_k)) {
      continue;
    }
    std::vector<float> y(tokens * hidden);
    const StepRequest request =
        RequestOf({.layer = step.layer,
                   .hidden = plan.shape.hidden,
                   .top_k = plan.shape.top_k,
                   .x = {reinterpret_cast<const Bf16*>(step.x.data()), tokens * hidden},
                   .ids = step.ids,
                   .weights = step.weights,
                   .y = y.data()});
    const absl::Status valid =
        ValidateStep(request, {.shape = plan.shape, .strict = (message.what & 1) != 0});
    CheckRefusal(valid);
    if (!valid.ok()) continue;
    const DispatchMode mode =
        (message.what & 2) != 0 ? DispatchMode::kLowLatency : DispatchMode::kNormal;
    DispatchPlan rows;
    const absl::Status planned =
        BuildDispatchPlan({step.ids, step.tokens, plan.shape.top_k}, placement, mode, &rows);
    CheckRefusal(planned);
    if (!planned.ok()) continue;
    std::vector<std::int32_t> slots(plan.workers.size(), 0);
    for (const auto& replica : plan.layers[0].experts) {
      ++slots[static_cast<std::size_t>(replica.worker.value)];
    }
    ChunkPlan chunks;
    CheckRefusal(chunks.Build(rows, slots, static_cast<std::uint32_t>(plan.shape.top_k)));
  }
}

}  // namespace switchyard::fuzz
