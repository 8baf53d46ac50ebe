#include "tests/testing/scripted_worker.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/format/bf16.h"
#include "core/placement_map.h"
#include "worker/routing/request_codec.h"

namespace switchyard::testing {
namespace {

// Result or error frames of a worker repeat the request's keys.
FrameHeader ReplyHeader(const FrameHeader& request, FrameKind kind, const RingOffer& ring,
                        const Incarnation& sender) {
  FrameHeader header = request;
  header.source_incarnation = static_cast<std::uint32_t>(sender.low);
  header.kind = kind;
  header.attachment = ring.attachment;
  return header;
}

std::vector<std::byte> Seal(const FrameHeader& header, std::span<const std::byte> metadata,
                            std::size_t frame_bytes) {
  std::vector<std::byte> frame(frame_bytes);
  HeaderBytes raw;
  EncodeHeader(header, metadata, &raw);
  std::copy(raw.begin(), raw.end(), frame.begin());
  std::copy(metadata.begin(), metadata.end(), frame.begin() + kFrameHeaderBytes);
  return frame;
}

RequestGeometry GeometryOf(const FrameHeader& header, const Plan& plan, std::int32_t ordinal) {
  const LayerPlacement* layer = plan.FindLayer(header.layer);
  const auto slots =
      std::count_if(layer->experts.begin(), layer->experts.end(),
                    [ordinal](const PhysicalExpert& p) { return p.worker.value == ordinal; });
  return {.mode = header.mode,
          .format = header.format,
          .rows = header.rows,
          .hidden = plan.shape.hidden,
          .top_k = plan.shape.top_k,
          .local_slots = static_cast<std::int32_t>(slots)};
}

// One result row by the rule, rounded as the mode wants it.
void ResultRow(const RequestView& view, std::uint32_t row, std::int32_t slot_of_row,
               const PlacementMap& placement, std::int32_t ordinal, std::span<const Bf16> x,
               Bf16* out) {
  const auto local = placement.OnWorker(WorkerOrdinal{ordinal});
  const auto factor = [&local](std::int32_t slot) {
    return static_cast<float>(local[static_cast<std::size_t>(slot)].expert.value + 1);
  };
  for (std::size_t i = 0; i < x.size(); ++i) {
    float sum = 0;
    if (view.mode() == DispatchMode::kLowLatency) {
      sum = factor(slot_of_row) * Bf16ToFloat(x[i]);
    } else {
      for (std::int32_t k = 0; k < view.top_k(); ++k) {
        const std::int32_t slot = view.slot(row, k);
        if (slot >= 0) sum += view.weight(row, k) * factor(slot) * Bf16ToFloat(x[i]);
      }
    }
    out[i] = FloatToBf16(sum);
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<Link>> ScriptedTransport::CreateLink(const LinkOptions& options) {
  auto link = std::make_unique<ScriptedLink>(this, options, next_attachment_++);
  links.push_back(link.get());
  ++stats_.links_open;
  return link;
}

bool ScriptedTransport::Progress(FrameSink& sink) {
  bool any = false;
  while (!pending_.empty()) {
    Pending pending = std::move(pending_.front());
    pending_.pop_front();
    any = true;
    if (std::find(links.begin(), links.end(), pending.link) == links.end()) continue;
    if (pending.frame.empty()) {
      sink.OnLinkDown(*pending.link, MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                                               "the test broke the link"));
      continue;
    }
    FrameHeader header;
    if (DecodeHeader(pending.frame, &header) != FrameDrop::kNone) continue;
    HeaderBytes raw;
    std::copy_n(pending.frame.begin(), raw.size(), raw.begin());
    std::vector<std::byte>& slot = pending.link->inbound[header.reply_slot];
    slot = std::move(pending.frame);
    sink.OnFrame(*pending.link, raw, header,
                 std::span<const std::byte>(slot).subspan(kFrameHeaderBytes));
  }
  return any;
}

void ScriptedTransport::Deliver(ScriptedLink* link, std::vector<std::byte> frame) {
  pending_.push_back({link, std::move(frame)});
}

void ScriptedTransport::BreakLink(ScriptedLink* link) { pending_.push_back({link, {}}); }

ScriptedLink::ScriptedLink(ScriptedTransport* transport, const LinkOptions& options,
                           std::uint32_t attachment)
    : Link(options.owner),
      made_with(std::static_pointer_cast<ScriptedMemory>(options.memory)),
      inbound(options.slots),
      transport_(transport) {
  offer_.transport = "scripted";
  offer_.attachment = AttachmentId{attachment};
  offer_.slots = options.slots;
  offer_.slot_bytes = options.slot_bytes;
}

absl::Status ScriptedLink::Connect(const RingOffer& peer) {
  outbound_.assign(peer.slots, std::vector<std::byte>(peer.slot_bytes, std::byte{0xa5}));
  return connect_result;
}

std::span<std::byte> ScriptedLink::OutboundSlot(std::uint32_t slot) { return outbound_[slot]; }

absl::Status ScriptedLink::Send(std::uint32_t slot, std::size_t frame_bytes) {
  if (!send_result.ok()) return send_result;
  const auto& memory = outbound_[slot];
  sent.push_back(
      {slot, {memory.begin(), memory.begin() + static_cast<std::ptrdiff_t>(frame_bytes)}});
  return absl::OkStatus();
}

void ScriptedLink::Close() {
  if (std::erase(transport_->links, this) > 0) --transport_->stats_.links_open;
}

ReadRequest ReadFrame(const std::vector<std::byte>& frame, const Plan& plan, std::int32_t ordinal) {
  ReadRequest request;
  DecodeHeader(frame, &request.header);
  const FrameLayout layout = LayoutOfRequest(GeometryOf(request.header, plan, ordinal));
  const auto begin = frame.begin() + static_cast<std::ptrdiff_t>(layout.metadata_begin);
  request.metadata.assign(begin, begin + static_cast<std::ptrdiff_t>(layout.metadata_bytes));
  request.rows = reinterpret_cast<const Bf16*>(frame.data() + layout.rows_begin);
  return request;
}

std::vector<std::byte> AnswerFrame(const std::vector<std::byte>& frame, const Plan& plan,
                                   std::int32_t ordinal, const RingOffer& reply_ring) {
  const ReadRequest request = ReadFrame(frame, plan, ordinal);
  std::vector<std::uint32_t> words(request.metadata.size() / sizeof(std::uint32_t));
  std::memcpy(words.data(), request.metadata.data(), request.metadata.size());
  RequestView view;
  ParseRequestMetadata(words, GeometryOf(request.header, plan, ordinal), &view).IgnoreError();
  const auto hidden = static_cast<std::size_t>(plan.shape.hidden);
  const FrameLayout layout = LayoutOfResult(request.header.rows, plan.shape.hidden);
  FrameHeader header = ReplyHeader(request.header, FrameKind::kResult, reply_ring,
                                   plan.workers[static_cast<std::size_t>(ordinal)].incarnation);
  header.payload_bytes = layout.payload_bytes();
  std::vector<std::byte> reply = Seal(header, {}, layout.frame_bytes);
  const PlacementMap placement(*plan.FindLayer(header.layer), plan.shape.experts,
                               static_cast<std::int32_t>(plan.workers.size()));
  std::int32_t slot = 0;
  std::uint32_t left = view.mode() == DispatchMode::kLowLatency ? view.slot_counts()[0] : 0;
  for (std::uint32_t row = 0; row < view.rows(); ++row) {
    while (view.mode() == DispatchMode::kLowLatency && left == 0) {
      left = view.slot_counts()[static_cast<std::size_t>(++slot)];
    }
    if (left > 0) --left;
    ResultRow(view, row, slot, placement, ordinal, {request.rows + row * hidden, hidden},
              reinterpret_cast<Bf16*>(reply.data() + layout.rows_begin) + row * hidden);
  }
  return reply;
}

std::vector<std::byte> ErrorFrameFor(const std::vector<std::byte>& frame, const ErrorBody& body,
                                     const RingOffer& reply_ring, const Incarnation& sender) {
  FrameHeader request;
  DecodeHeader(frame, &request);
  const FrameLayout layout = LayoutOfError(body.text.size());
  std::vector<std::byte> metadata(layout.metadata_bytes);
  EncodeErrorBody(body, metadata);
  FrameHeader header = ReplyHeader(request, FrameKind::kError, reply_ring, sender);
  header.payload_bytes = layout.payload_bytes();
  return Seal(header, metadata, layout.frame_bytes);
}

namespace {

class ScriptedAttachStream final : public AttachStream {
 public:
  explicit ScriptedAttachStream(std::shared_ptr<ScriptedChannel::Stream> stream)
      : stream_(std::move(stream)) {}
  ~ScriptedAttachStream() override {
    stream_->open = false;
    stream_->sink = nullptr;
  }
  void Bind(const BindRequest& order) override { stream_->binds.push_back(order); }
  void Release(const ReleaseRequest& order) override { stream_->released.push_back(order.epoch); }

 private:
  std::shared_ptr<ScriptedChannel::Stream> stream_;
};

class ScriptedWatchStream final : public WatchStream {
 public:
  explicit ScriptedWatchStream(ScriptedChannel* channel) : channel_(channel) {}
  ~ScriptedWatchStream() override { channel_->watch_sink = nullptr; }

 private:
  ScriptedChannel* channel_;
};

}  // namespace

absl::StatusOr<SessionGrant> ScriptedChannel::OpenSession(const OpenSessionRequest& /*order*/,
                                                          Duration /*timeout*/) {
  return grant;
}

absl::Status ScriptedChannel::CloseSession(SessionId session, Duration /*timeout*/) {
  closed.push_back(session);
  return absl::OkStatus();
}

std::unique_ptr<WatchStream> ScriptedChannel::Watch(const WatchRequest& order, WatchSink* sink) {
  watches.push_back(order);
  auto stream = std::make_unique<ScriptedWatchStream>(this);
  watch_sink = sink;
  return stream;
}

std::unique_ptr<AttachStream> ScriptedChannel::Attach(const std::string& endpoint,
                                                      const AttachRequest& order,
                                                      AttachSink* sink) {
  auto stream = std::make_shared<Stream>();
  stream->endpoint = endpoint;
  stream->order = order;
  stream->sink = sink;
  streams.push_back(stream);
  return std::make_unique<ScriptedAttachStream>(stream);
}

absl::StatusOr<SessionCounters> ScriptedChannel::GetCounters(const std::string& /*endpoint*/,
                                                             SessionId /*session*/,
                                                             Duration /*timeout*/) {
  return counters;
}

std::shared_ptr<ScriptedChannel::Stream> ScriptedChannel::Open(const std::string& endpoint) const {
  for (auto it = streams.rbegin(); it != streams.rend(); ++it) {
    if ((*it)->endpoint == endpoint && (*it)->open) return *it;
  }
  return nullptr;
}

AttachGrant GrantFor(const AttachRequest& order, Incarnation incarnation,
                     std::uint32_t attachment) {
  AttachGrant grant;
  grant.request_ring = order.reply_ring;
  grant.request_ring.slot_bytes = order.request_slot_bytes_or_reply();
  grant.request_ring.incarnation = incarnation;
  grant.request_ring.attachment = AttachmentId{attachment};
  grant.path = "inproc";
  return grant;
}

}  // namespace switchyard::testing
