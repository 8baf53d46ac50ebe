#include "worker/expert/expert_attachment.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/expert/attach_grant.h"

namespace switchyard {
namespace {

// A frame header has room for the low half only; it tells two lives apart, it does not
// authenticate.
std::uint32_t LowBits(const Incarnation& incarnation) {
  return static_cast<std::uint32_t>(incarnation.low);
}

// The request row that a refusal names, for the error frame.
std::uint32_t RowOf(const absl::Status& refusal) {
  const auto metadata = MetadataOf(refusal);
  const auto at = metadata.find("row");
  // A refusal of a whole frame names no row.
  std::uint32_t row = kNoRow;
  if (at != metadata.end() && !absl::SimpleAtoi(at->second, &row)) row = kNoRow;
  return row;
}

// The arrays of a credit, in elements. The reply slot bounds a request as well: one with more rows
// could not be answered.
struct CreditSizes {
  CreditSizes(const AttachRequest& request, const MoeShape& shape)
      : routes(RequestRowsMax(request.reply_ring.slot_bytes, shape) *
               static_cast<std::size_t>(RoutingWidth(request.mode, shape.top_k))),
        weights(request.mode == DispatchMode::kNormal ? routes : 0),
        words(MetadataWordsMax(request.reply_ring.slot_bytes, shape)) {}
  [[nodiscard]] std::size_t bytes() const {
    return routes * sizeof(std::int32_t) + weights * sizeof(float) + words * sizeof(std::uint32_t);
  }

  std::size_t routes;
  std::size_t weights;
  std::size_t words;
};

}  // namespace

ExpertAttachment::ExpertAttachment(const AttachRequest& request, CommittedEpoch* first,
                                   Identity identity)
    : request_(request),
      identity_(std::move(identity)),
      shape_(first->runtime->shape()),
      rows_max_(GrantedRowsMax(request, shape_)),
      bytes_(BytesOf(request, *first->runtime)),
      bound_({first}),
      credits_(request.reply_ring.slots),
      counts_(*first->runtime) {
  AnnounceDeadline(request.step_deadline);
  if (request.record_amax) counts_.RecordAmax();
}

// Memory of a device goes where there is time to free it.
ExpertAttachment::~ExpertAttachment() {
  if (device_rings_ == nullptr) return;
  transport_->RunAside([rings = std::move(device_rings_)] {});
}

std::uint64_t ExpertAttachment::BytesOf(const AttachRequest& request, const EpochRuntime& runtime) {
  const std::uint64_t slots = request.reply_ring.slots;
  const std::uint64_t experts =
      runtime.layers.size() * static_cast<std::uint64_t>(runtime.shape().experts);
  const std::uint64_t rings = slots * (std::uint64_t{request.request_slot_bytes_or_reply()} +
                                       request.reply_ring.slot_bytes);
  return rings + slots * (sizeof(Credit) + CreditSizes(request, runtime.shape()).bytes()) +
         experts * (sizeof(std::uint64_t) + (request.record_amax ? sizeof(ExpertAmax) : 0));
}

std::shared_ptr<CreditMemory> ExpertAttachment::MakeCredits(const AttachRequest& request,
                                                            const MoeShape& shape) {
  auto memory = std::make_shared<CreditMemory>();
  memory->bytes = CreditSizes(request, shape).bytes();
  for (std::uint32_t i = 0; i < request.reply_ring.slots; ++i) {
    // The peer chose the size, so a lack of memory is its error and not the process's end.
    memory->pieces.emplace_back(new (std::nothrow) std::byte[memory->bytes]());
    if (memory->pieces.back() != nullptr) continue;
    memory->pieces.pop_back();
    break;
  }
  return memory;
}

absl::Status ExpertAttachment::TakeCredits(std::shared_ptr<CreditMemory> memory) {
  const CreditSizes sizes(request_, shape_);
  // The epoch may have given way to one of another shape since it was made.
  if (memory == nullptr || memory->bytes != sizes.bytes()) memory = MakeCredits(request_, shape_);
  if (memory->pieces.size() < credits_.size()) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrFormat("worker %s has no memory for metadata of %d slots of %d "
                                     "bytes; request fewer or smaller slots",
                                     identity_.worker_id, request_.reply_ring.slots,
                                     request_.reply_ring.slot_bytes));
  }
  for (std::size_t i = 0; i < credits_.size(); ++i) {
    Credit& credit = credits_[i];
    credit.memory = std::move(memory->pieces[i]);
    std::byte* at = credit.memory.get();
    credit.slots = {reinterpret_cast<std::int32_t*>(at), sizes.routes};
    at += credit.slots.size_bytes();
    credit.weights = {reinterpret_cast<float*>(at), sizes.weights};
    at += credit.weights.size_bytes();
    credit.metadata = {reinterpret_cast<std::uint32_t*>(at), sizes.words};
  }
  return absl::OkStatus();
}

LinkOptions LinkOptionsOf(const AttachRequest& request) {
  // The offer came with the request, and the source learns of this side's by the answer.
  return {.cookie = request.cookie,
          .slots = request.reply_ring.slots,
          .slot_bytes = request.request_slot_bytes_or_reply(),
          .choice = request.transport,
          .connects_at_once = true};
}

absl::StatusOr<AttachGrant> ExpertAttachment::Open(Transport* transport, DeviceBackend* device,
                                                   AttachAhead ahead) {
  counted_ = ahead.counted;
  transport_ = transport;
  SY_RETURN_IF_ERROR(TakeCredits(std::move(ahead.credits)));
  LinkOptions options = LinkOptionsOf(request_);
  options.memory = std::move(ahead.memory);
  options.until_freed = std::move(ahead.counted);
  options.owner = this;
  SY_ASSIGN_OR_RETURN(link_, transport->CreateLink(options));
  // The grant offers the own ring, so the link exists before it is connected. After an error the
  // ring goes with this attachment.
  SY_RETURN_IF_ERROR(link_->Connect(request_.reply_ring));
  inbound_mapping_ = device->MapHost(link_->inbound_memory());
  outbound_mapping_ = device->MapHost(link_->outbound_memory());
  AttachGrant grant{.request_ring = link_->offer(),
                    .path = std::string(LinkPathName(link_->path())),
                    .why_messages = link_->why_messages()};
  OfferDeviceRings(std::move(ahead), &grant);
  return grant;
}

void ExpertAttachment::OfferDeviceRings(AttachAhead ahead, AttachGrant* grant) {
  const LinkPath path = link_->path();
  // Frames that travel as messages carry their rows.
  const bool in_place = path == LinkPath::kMapped || path == LinkPath::kInProcess;
  if (ahead.device_rings == nullptr || !in_place) {
    if (in_place) grant->why_no_device = std::move(ahead.why_no_device_rings);
    if (ahead.device_rings == nullptr) return;
    transport_->RunAside([rings = std::move(ahead.device_rings)] {});
    return;
  }
  device_rings_ = std::move(ahead.device_rings);
  device_rings_->Offer(&grant->request_ring);
}

absl::Status ExpertAttachment::Bind(CommittedEpoch* epoch) {
  if (Binds(epoch)) return absl::OkStatus();
  if (!counts_.Fits(*epoch->runtime)) {
    return MakeError(
        absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
        absl::StrFormat("epoch %d of %s has layers or sizes that differ from those the attachment "
                        "was made for; attach again",
                        epoch->runtime->epoch().value, request_.deployment));
  }
  bound_.push_back(epoch);
  // Ascending: the newest epoch is last, whatever the order in which the binds arrived.
  std::sort(bound_.begin(), bound_.end(), [](const CommittedEpoch* a, const CommittedEpoch* b) {
    return a->runtime->epoch() < b->runtime->epoch();
  });
  return absl::OkStatus();
}

void ExpertAttachment::Release(const CommittedEpoch* epoch) { std::erase(bound_, epoch); }

void ExpertAttachment::ReleaseOverdue(const CommittedEpoch* epoch) {
  overdue_ = std::max(overdue_, epoch->runtime->epoch());
  Release(epoch);
}

void ExpertAttachment::AnnounceDeadline(Duration deadline) {
  step_deadline_ = std::max(step_deadline_, std::min(deadline, kStepDeadlineMax));
}

bool ExpertAttachment::Binds(const CommittedEpoch* epoch) const {
  return std::find(bound_.begin(), bound_.end(), epoch) != bound_.end();
}

CommittedEpoch* ExpertAttachment::FindBound(Epoch epoch) const {
  for (CommittedEpoch* bound : bound_) {
    if (bound->runtime->epoch() == epoch) return bound;
  }
  return nullptr;
}

absl::Status ExpertAttachment::Overdue(Epoch epoch) const {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kStaleEpoch,
                   absl::StrFormat("epoch %d was retired, and worker %s no longer waits for its "
                                   "steps; retry when the next epoch is bound",
                                   epoch.value, identity_.worker_id),
                   {{"worker", identity_.worker_id}, {"epoch", absl::StrCat(epoch.value)}});
}

ExpertAttachment::Arrival ExpertAttachment::OnFrame(const HeaderBytes& raw,
                                                    const FrameHeader& header,
                                                    std::span<const std::byte> payload,
                                                    FrameDrop* drop) {
  *drop = FrameDrop::kNone;
  if (header.kind != FrameKind::kRequest) *drop = FrameDrop::kField;
  if (detached_) *drop = FrameDrop::kAttachment;
  // A frame of an earlier life of the source is of an attachment that has ended.
  if (header.source_incarnation != LowBits(request_.reply_ring.incarnation)) {
    *drop = FrameDrop::kAttachment;
  }
  // The last check, since what follows indexes credits_ with it. A dropped frame gets no answer:
  // its sender cannot be trusted to be the peer of this attachment.
  if (header.request_slot >= credits_.size() || header.reply_slot >= credits_.size()) {
    *drop = FrameDrop::kSlot;
  }
  const bool on_device = (header.flags & kRowsOnDevice) != 0;
  if (on_device && device_rings_ == nullptr) *drop = FrameDrop::kField;
  if (*drop != FrameDrop::kNone) return Arrival::kDropped;
  Credit& credit = credits_[header.request_slot];
  // Checked before the intake, which would overwrite the metadata that the running batch reads.
  if (credit.busy) return Arrival::kDuplicate;
  const CommittedEpoch* epoch = FindBound(header.epoch);
  credit.intake = TakeInRequest(
      {.worker_id = identity_.worker_id,
       .shape = shape_,
       .mode = request_.mode,
       .runtime = epoch != nullptr ? epoch->runtime.get() : nullptr,
       .reply_slot_bytes = link_->OutboundSlot(header.reply_slot).size(),
       .rows_max = rows_max_},
      {.raw = &raw,
       .header = &header,
       .payload = payload,
       .on_device = on_device ? device_rings_->inbound(header.request_slot) : nullptr},
      credit.metadata);
  if (credit.intake.drop != FrameDrop::kNone) {
    *drop = credit.intake.drop;
    return Arrival::kDropped;
  }
  // The source bound it in order and may not know yet that it is gone: no mistake of its own.
  if (epoch == nullptr && header.epoch <= overdue_) credit.intake.refusal = Overdue(header.epoch);
  credit.header = header;
  credit.busy = true;
  if (credit.intake.refusal.ok()) {
    // Shares ownership: the source may release the epoch, and the coordinator drop it, before the
    // batch runs.
    credit.epoch = *epoch;
    ExpandRouting(credit.intake.view, credit.slots, credit.weights);
  }
  return Arrival::kTaken;
}

// Answers go the way that the rows came: a source that has them on its device sums them there.
std::byte* ExpertAttachment::ReplySlotOf(const FrameHeader& header) const {
  if ((header.flags & kRowsOnDevice) != 0) return device_rings_->outbound(header.reply_slot);
  return link_->OutboundSlot(header.reply_slot).data();
}

BatchInput ExpertAttachment::InputOf(const Credit& credit) {
  const FrameHeader& header = credit.header;
  const LayerRuntime& layer = *credit.intake.layer;
  // The device writes the answer where it will be sent from, which saves a copy of every row.
  std::byte* reply = ReplySlotOf(header);
  const FrameLayout layout = LayoutOfResult(header.rows, shape_.hidden);
  return {.codec = layer.Find(header.format.dtype)->codec.get(),
          .rows = credit.intake.rows,
          .scales = credit.intake.scales,
          .count = header.rows,
          .slots = credit.slots.data(),
          .weights = credit.weights.data(),
          .out = reinterpret_cast<Bf16*>(reply + layout.rows_begin)};
}

BatchKey ExpertAttachment::KeyOf(const Credit& credit) {
  return {.layer = credit.intake.layer,
          .mode = credit.header.mode,
          .amax = counts_.AmaxOf(*credit.intake.layer)};
}

WorkClass WorkClassOf(Phase phase, DispatchMode mode) {
  switch (phase) {
    case Phase::kDecode:
      return WorkClass::kDecode;
    case Phase::kPrefill:
      return WorkClass::kPrefill;
    case Phase::kMixed:
      break;
  }
  // A mixed session in low_latency has few rows a step, by its limit of tokens.
  return mode == DispatchMode::kLowLatency ? WorkClass::kDecode : WorkClass::kPrefill;
}

absl::Status ExpertAttachment::SendResult(Credit& credit, std::uint32_t nan_rows) {
  const FrameHeader& request = credit.header;
  counts_.Add(*credit.intake.layer, credit.intake.view,
              RowBytesOf(request.format, shape_.hidden).total(),
              RowBytesOf(kBf16Format, shape_.hidden).total());
  // Poisoned rows are served and counted: NaN is the model's business, but an operator wants to see
  // it.
  counts_.AddNanRows(nan_rows);
  const FrameLayout layout = LayoutOfResult(request.rows, shape_.hidden);
  FrameHeader header = ReplyHeader(credit, FrameKind::kResult, layout);
  header.format = kBf16Format;
  return Send(credit, header, {});
}

absl::Status ExpertAttachment::SendRefusal(Credit& credit) {
  const absl::Status& refusal = credit.intake.refusal;
  // The text is cut to what the smallest slot holds (kSlotBytesMin in attach_limits.cc), so that
  // every refusal fits every ring.
  const ErrorBody body{.code = refusal.code(),
                       .reason = static_cast<std::uint32_t>(ReasonOf(refusal)),
                       .row = RowOf(refusal),
                       .text = std::string(refusal.message().substr(0, kErrorTextMax))};
  const FrameLayout layout = LayoutOfError(body.text.size());
  std::vector<std::byte> metadata(layout.metadata_bytes);
  metadata.resize(EncodeErrorBody(body, metadata));
  FrameHeader header = ReplyHeader(credit, FrameKind::kError, layout);
  header.rows = 0;
  header.flags = 0;
  credit.intake.refusal = absl::OkStatus();
  return Send(credit, header, metadata);
}

AttachmentCounters ExpertAttachment::Snapshot() const {
  AttachmentCounters counters = counts_.Snapshot();
  counters.session = request_.session;
  counters.worker_id = identity_.worker_id;
  counters.path = std::string(LinkPathName(link_->path()));
  return counters;
}

// The request's header addressed back: layer, epoch, sequence and slots return as they came,
// because the source finds its step by them.
FrameHeader ExpertAttachment::ReplyHeader(const Credit& credit, FrameKind kind,
                                          const FrameLayout& layout) const {
  FrameHeader header = credit.header;
  header.kind = kind;
  header.attachment = request_.reply_ring.attachment;
  header.source_incarnation = LowBits(identity_.incarnation);
  header.payload_bytes = layout.payload_bytes();
  return header;
}

absl::Status ExpertAttachment::Send(Credit& credit, const FrameHeader& header,
                                    std::span<const std::byte> metadata) {
  HeaderBytes raw;
  EncodeHeader(header, metadata, &raw);
  const std::span<std::byte> slot = link_->OutboundSlot(header.reply_slot);
  std::memcpy(slot.data(), raw.data(), raw.size());
  if (!metadata.empty()) {
    std::memcpy(slot.data() + kFrameHeaderBytes, metadata.data(), metadata.size());
  }
  // The credit is freed whether the send succeeds or not: after a failure the link is closed, and
  // no event would free it.
  credit.busy = false;
  credit.epoch = {};
  return link_->Send(header.reply_slot, kFrameHeaderBytes + header.payload_bytes);
}

}  // namespace switchyard
