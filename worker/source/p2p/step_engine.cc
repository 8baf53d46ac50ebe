#include "worker/source/p2p/step_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/routing/request_codec.h"
#include "worker/source/p2p/reply_frame.h"
#include "worker/source/step_validation.h"

namespace switchyard {
namespace {

constexpr std::uint32_t kOwnPair = 0xffffffffU;  // own experts take no credit

}  // namespace

StepEngine::StepEngine(StepEngineOptions options) : options_(std::move(options)) {
  order_.reserve(options_.steps_max);
}

absl::StatusOr<StepTicket> StepEngine::Submit(const StepRequest& request, BoundPlan* binding,
                                              TimePoint now) {
  const BoundLayer* layer = binding->FindLayer(request.layer);
  SY_RETURN_IF_ERROR(
      ValidateStep(request, *binding, layer, options_.order, options_.device->row_ops()));
  SY_ASSIGN_OR_RETURN(const std::uint32_t index, FreeSlot());
  Slot& slot = *slots_[index];
  const Duration wait =
      request.deadline > Duration::zero() ? request.deadline : options_.order.step_deadline;
  const TimePoint started = options_.clock->Now();
  SY_RETURN_IF_ERROR(slot.step.Begin(StepId{last_step_ + 1}, request, binding, *layer,
                                     options_.order.y_dtype, options_.chunk_rows, now + wait));
  SY_RETURN_IF_ERROR(CheckAttached(slot.step));
  ++last_step_;
  ++times_.steps;
  times_.plan_ns += SinceNs(started);
  slot.used = true;
  ++slot.generation;
  ++binding->steps;
  order_.push_back(index);
  FinishTokens(slot.step);  // Tokens without experts, or no tokens at all.
  Pump(now);
  return StepTicket{index, slot.generation};
}

absl::StatusOr<std::uint32_t> StepEngine::FreeSlot() {
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i]->used) return i;
  }
  if (slots_.size() < options_.steps_max) {
    slots_.push_back(std::make_unique<Slot>());
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
      absl::StrFormat("%d steps of this session are not combined yet; combine one first",
                      options_.steps_max),
      {{"limit", absl::StrCat(options_.steps_max)}});
}

absl::Status StepEngine::CheckAttached(const Step& step) const {
  const BoundPlan& binding = *step.binding();
  for (std::size_t w = 0; w < binding.workers.size(); ++w) {
    const Attachment& attachment = *binding.workers[w];
    const bool bound = binding.bound[w] || SY_MUTANT(options_.mutant, kSwitchBeforeBound);
    if (attachment.state == Attachment::State::kReady && bound) continue;
    if (step.NextUnsent(static_cast<std::int32_t>(w)) < 0) continue;
    return WorkerError(Reason::kWorkerLost, step, attachment,
                       absl::StrCat("is not attached (", attachment.down_why.message(),
                                    "); try again when the next epoch is committed"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StepEngine::Done(const StepTicket& ticket) const {
  if (ticket.slot >= slots_.size() || !slots_[ticket.slot]->used ||
      slots_[ticket.slot]->generation != ticket.generation) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
        "this dispatch handle was combined before or never dispatched; dispatch again");
  }
  return slots_[ticket.slot]->step.done();
}

absl::Status StepEngine::Take(const StepTicket& ticket, TimePoint now) {
  SY_ASSIGN_OR_RETURN(const bool done, Done(ticket));
  Slot& slot = *slots_[ticket.slot];
  if (!done) {
    FailStep(
        slot.step,
        MakeError(absl::StatusCode::kCancelled, Reason::kUnspecified, "given up by its caller"),
        now);
  }
  slot.used = false;
  return slot.step.status();
}

bool StepEngine::Pump(TimePoint now) {
  bool sent = false;
  // Oldest step first on every attachment; own experts last, so that the others run meanwhile.
  for (const std::uint32_t index : order_) {
    Step& step = slots_[index]->step;
    if (step.done()) continue;
    for (std::size_t w = 0; w < step.binding()->workers.size(); ++w) {
      Attachment& attachment = *step.binding()->workers[w];
      if (attachment.own) continue;
      sent |= PumpWorker(step, static_cast<std::int32_t>(w), attachment, now);
    }
  }
  if (options_.own_experts != nullptr) {
    for (const std::uint32_t index : order_) sent |= PumpOwn(slots_[index]->step, now);
  }
  RetireDone();
  return sent;
}

bool StepEngine::PumpWorker(Step& step, std::int32_t worker, Attachment& attachment,
                            TimePoint now) {
  bool sent = false;
  while (!step.done()) {
    const std::int32_t next = step.NextUnsent(worker);
    if (next < 0 || attachment.pairs.free() == 0) break;
    const auto chunk = static_cast<std::uint32_t>(next);
    const Chunk& row = step.chunk_plan().chunks()[chunk];
    const auto pair = attachment.pairs.Send({step.id(), step.layer(), row.index, 0});
    const TimePoint started = options_.clock->Now();
    const std::size_t bytes =
        FillFrame(step, chunk, attachment, *pair, attachment.link->OutboundSlot(*pair));
    times_.encode_ns += SinceNs(started);
    const TimePoint filled = options_.clock->Now();
    step.MarkSent(chunk, *pair);
    const absl::Status status = attachment.link->Send(*pair, bytes);
    times_.send_ns += SinceNs(filled);
    if (!status.ok()) {
      FailStep(step, WorkerError(Reason::kWorkerLost, step, attachment, status.message()), now);
      break;
    }
    ++attachment.frames_sent;
    sent = true;
  }
  return sent;
}

bool StepEngine::PumpOwn(Step& step, TimePoint now) {
  bool ran = false;
  for (std::size_t w = 0; w < step.binding()->workers.size() && !step.done(); ++w) {
    if (!step.binding()->workers[w]->own) continue;
    std::int32_t next = -1;
    while (!step.done() && (next = step.NextUnsent(static_cast<std::int32_t>(w))) >= 0) {
      const absl::Status status = RunOwn(step, static_cast<std::uint32_t>(next));
      if (!status.ok()) FailStep(step, status, now);
      ran = true;
    }
  }
  if (ran) FinishTokens(step);
  return ran;
}

absl::Status StepEngine::RunOwn(Step& step, std::uint32_t chunk) {
  const Chunk& cut = step.chunk_plan().chunks()[chunk];
  const BoundPlan& binding = *step.binding();
  step.MarkSent(chunk, kOwnPair);
  CollectRows(step, cut);
  const Codec& codec = *step.layer_binding().codecs[static_cast<std::size_t>(cut.worker)];
  if (codec.dtype() != DispatchDtype::kBf16) RoundTripRows(codec, binding.plan.shape.hidden);
  own_metadata_.resize(LayoutOf(step, cut).metadata_bytes);
  WriteMetadata(step, cut, own_metadata_);
  Bf16* out = step.OwnRows(cut.rows);
  SY_RETURN_IF_ERROR(options_.own_experts->Run({.deployment = binding.plan.deployment,
                                                .session = options_.session,
                                                .epoch = binding.plan.epoch,
                                                .hash = binding.hash,
                                                .layer = step.layer(),
                                                .mode = step.layer_binding().mode,
                                                .rows = step.chunk_plan().RowsOf(cut),
                                                .x = row_pointers_,
                                                .rounded = codec.dtype() != DispatchDtype::kBf16,
                                                .metadata = own_metadata_,
                                                .out = out}));
  step.MarkAnswered(chunk, out);
  return absl::OkStatus();
}

// What the wire does to the rows of other workers: an expert answers alike wherever it runs.
void StepEngine::RoundTripRows(const Codec& codec, std::int32_t hidden) {
  const auto rows = static_cast<std::int64_t>(row_pointers_.size());
  const RowBytes row = RowBytesOf(codec.format(), hidden);
  own_wire_.resize(static_cast<std::size_t>(rows * row.total()));
  own_rows_.resize(static_cast<std::size_t>(rows * hidden));
  std::byte* scales = own_wire_.data() + rows * row.data;
  codec.Encode(row_pointers_, hidden, own_wire_.data(), scales);
  codec.Decode(own_wire_.data(), scales, rows, hidden, own_rows_.data());
  for (std::int64_t r = 0; r < rows; ++r) {
    row_pointers_[static_cast<std::size_t>(r)] = own_rows_.data() + r * hidden;
  }
}

FrameLayout StepEngine::LayoutOf(const Step& step, const Chunk& chunk) const {
  const BoundLayer& layer = step.layer_binding();
  return LayoutOfRequest(
      {.mode = layer.mode,
       .format = layer.codecs[static_cast<std::size_t>(chunk.worker)]->format(),
       .rows = chunk.rows,
       .hidden = step.binding()->plan.shape.hidden,
       .top_k = step.request().top_k,
       .local_slots = layer.local_slots[static_cast<std::size_t>(chunk.worker)]});
}

void StepEngine::CollectRows(const Step& step, const Chunk& chunk) {
  row_pointers_.clear();
  for (const PlannedRow& row : step.chunk_plan().RowsOf(chunk)) {
    row_pointers_.push_back(step.request().x +
                            static_cast<std::int64_t>(row.token) * step.request().x_stride);
  }
}

void StepEngine::WriteMetadata(const Step& step, const Chunk& chunk,
                               std::span<std::byte> out) const {
  WriteRequestMetadata(step.layer_binding().mode,
                       {.rows = step.chunk_plan().RowsOf(chunk),
                        .slot_counts = step.chunk_plan().SlotCountsOf(chunk),
                        .worker = WorkerOrdinal{chunk.worker},
                        .top_k = step.request().top_k,
                        .slot_of_pair = step.plan().slot_of_pair,
                        .worker_of_pair = step.plan().worker_of_pair,
                        .weights = step.weights()},
                       out);
}

std::size_t StepEngine::FillFrame(const Step& step, std::uint32_t chunk,
                                  const Attachment& attachment, std::uint32_t pair,
                                  std::span<std::byte> slot) {
  const Chunk& cut = step.chunk_plan().chunks()[chunk];
  const FrameLayout layout = LayoutOf(step, cut);
  const Codec& codec = *step.layer_binding().codecs[static_cast<std::size_t>(cut.worker)];
  const std::span<std::byte> metadata = slot.subspan(layout.metadata_begin, layout.metadata_bytes);
  WriteMetadata(step, cut, metadata);
  CollectRows(step, cut);
  codec.Encode(row_pointers_, step.binding()->plan.shape.hidden, slot.data() + layout.rows_begin,
               slot.data() + layout.scales_begin);
  FrameHeader header;
  header.kind = FrameKind::kRequest;
  header.mode = step.layer_binding().mode;
  header.format = codec.format();
  header.cookie = options_.cookie;
  const Step& numbers_epoch =
      SY_MUTANT(options_.mutant, kMixedEpochs) ? slots_[order_.back()]->step : step;
  header.epoch = numbers_epoch.binding()->plan.epoch;
  header.step = step.id();
  header.attachment = attachment.peer_attachment;
  header.source_incarnation = static_cast<std::uint32_t>(options_.incarnation.low);
  header.layer = step.layer();
  header.chunk = cut.index;
  header.chunks = cut.count;
  header.rows = cut.rows;
  header.request_slot = static_cast<std::uint16_t>(pair);
  header.reply_slot = static_cast<std::uint16_t>(pair);
  header.payload_bytes = layout.payload_bytes();
  HeaderBytes raw;
  EncodeHeader(header, metadata, &raw);
  std::copy(raw.begin(), raw.end(), slot.begin());
  return layout.frame_bytes;
}

void StepEngine::OnFrame(Attachment& attachment, const HeaderBytes& raw, const FrameHeader& header,
                         std::span<const std::byte> payload, TimePoint now) {
  // The sender's incarnation: a reply of an earlier life of the worker is nobody's.
  const auto sender = static_cast<std::uint32_t>(attachment.worker.incarnation.low);
  if (header.kind == FrameKind::kRequest || header.source_incarnation != sender) {
    options_.transport->CountDrop(FrameDrop::kField);
    return;
  }
  if (header.reply_slot >= attachment.pairs.size()) {
    options_.transport->CountDrop(FrameDrop::kSlot);
    return;
  }
  // A result has no metadata, an error is metadata throughout.
  const bool is_error = header.kind == FrameKind::kError;
  ErrorBody error;
  const FrameDrop drop = is_error ? ReadErrorFrame(raw, payload, &error) : CheckCrc(raw, {});
  if (drop != FrameDrop::kNone) {
    options_.transport->CountDrop(drop);
    return;
  }
  if (SY_MUTANT(options_.mutant, kReplyKeyIgnored)) {
    FrameHeader other = header;
    for (const std::uint32_t index : order_) {
      const Step& step = slots_[index]->step;
      for (std::uint32_t c = 0; c < step.chunk_plan().chunks().size(); ++c) {
        const bool sent = step.chunk_state(c) == Step::ChunkState::kSent;
        if (!sent || step.pair_of(c) != header.reply_slot) continue;
        if (&step.AttachmentOf(c) != &attachment) continue;
        other.step = step.id();
        other.layer = step.layer();
        other.chunk = step.chunk_plan().chunks()[c].index;
      }
    }
    TakeReply(attachment, other, is_error ? &error : nullptr, payload, now);
  } else {
    TakeReply(attachment, header, is_error ? &error : nullptr, payload, now);
  }
  Pump(now);
}

// `error`: what an error frame says; nullptr for a result.
void StepEngine::TakeReply(Attachment& attachment, const FrameHeader& header,
                           const ErrorBody* error, std::span<const std::byte> payload,
                           TimePoint now) {
  if (!Accept(attachment, header)) return;
  // A pair that is not given up has its step in flight.
  Step& step = *FindStep(header.step);
  if (error != nullptr) {
    const auto chunk = static_cast<std::uint32_t>(step.ChunkAt(attachment, header.chunk));
    FailStep(step, StatusOfError(*error, step, chunk), now);
  } else {
    OnResult(step, attachment, header, payload, now);
  }
}

bool StepEngine::Accept(Attachment& attachment, const FrameHeader& header) {
  switch (attachment.pairs.Accept(header.reply_slot,
                                  {header.step, header.layer, header.chunk, header.attempt})) {
    case CreditTable::Answer::kUnexpected:
      ++attachment.replies_unexpected;
      return false;
    case CreditTable::Answer::kLate:
      ++attachment.replies_late;
      return false;
    case CreditTable::Answer::kAccepted:
      break;
  }
  return true;
}

void StepEngine::OnResult(Step& step, Attachment& attachment, const FrameHeader& header,
                          std::span<const std::byte> payload, TimePoint now) {
  const auto chunk = static_cast<std::uint32_t>(step.ChunkAt(attachment, header.chunk));
  step.MarkAnswered(chunk, reinterpret_cast<const Bf16*>(payload.data()));
  const Chunk& cut = step.chunk_plan().chunks()[chunk];
  const FrameLayout layout = LayoutOfResult(cut.rows, step.binding()->plan.shape.hidden);
  if (header.rows != cut.rows || header.payload_bytes != layout.payload_bytes() ||
      header.epoch != step.binding()->plan.epoch) {
    FailStep(
        step,
        MakeError(absl::StatusCode::kInternal, Reason::kFrame,
                  absl::StrFormat("worker %s, layer %d: answered %d rows of epoch %d where %d "
                                  "rows of epoch %d were asked; nothing of it was used",
                                  attachment.worker.id, step.layer().value, header.rows,
                                  header.epoch.value, cut.rows, step.binding()->plan.epoch.value),
                  {{"worker", attachment.worker.id},
                   {"layer", absl::StrCat(step.layer().value)},
                   {"rows", absl::StrCat(header.rows)}}),
        now);
    return;
  }
  FinishTokens(step);
}

void StepEngine::FinishTokens(Step& step) {
  const TimePoint started = options_.clock->Now();
  step.FinishTokens(options_.device->row_ops(), [&step](std::uint32_t chunk) {
    const std::uint32_t pair = step.pair_of(chunk);
    if (pair != kOwnPair) step.AttachmentOf(chunk).pairs.Release(pair);
  });
  times_.sum_ns += SinceNs(started);
}

void StepEngine::FailStep(Step& step, absl::Status why, TimePoint now) {
  if (step.done()) return;
  for (std::uint32_t c = 0; c < step.chunk_plan().chunks().size(); ++c) {
    const Step::ChunkState state = step.chunk_state(c);
    if (state != Step::ChunkState::kSent && state != Step::ChunkState::kAnswered) continue;
    Attachment& attachment = step.AttachmentOf(c);
    const std::uint32_t pair = step.pair_of(c);
    // The pairs of a lost attachment went with it, whatever life it has now.
    if (pair == kOwnPair || pair >= attachment.pairs.size()) continue;
    attachment.pairs.GiveUp(pair, now);
    if (SY_MUTANT(options_.mutant, kPairFreedEarly)) attachment.pairs.Release(pair);
  }
  step.Fail(std::move(why));
}

void StepEngine::FailOn(Attachment& attachment, const absl::Status& why, TimePoint now) {
  for (const std::uint32_t index : order_) {
    Step& step = slots_[index]->step;
    if (step.done() || !step.Awaits(attachment)) continue;
    FailStep(step,
             WorkerError(Reason::kWorkerLost, step, attachment,
                         absl::StrCat("lost (", why.message(),
                                      "); try again when the next epoch is committed")),
             now);
  }
  RetireDone();
}

void StepEngine::FailAll(const absl::Status& why, TimePoint now) {
  for (const std::uint32_t index : order_) FailStep(slots_[index]->step, why, now);
  RetireDone();
}

bool StepEngine::Expire(TimePoint now) {
  bool expired = false;
  for (const std::uint32_t index : order_) {
    Step& step = slots_[index]->step;
    if (step.done() || step.deadline() > now) continue;
    FailStep(
        step,
        WorkerError(Reason::kStepDeadline, step, *step.FirstAwaited(),
                    "did not answer before the step's deadline; try again, or ask for a longer "
                    "step_deadline"),
        now);
    expired = true;
  }
  RetireDone();
  return expired;
}

void StepEngine::RetireDone() {
  std::erase_if(order_, [this](std::uint32_t index) {
    Step& step = slots_[index]->step;
    if (!step.done()) return false;
    --step.binding()->steps;
    return true;
  });
}

std::optional<TimePoint> StepEngine::NextDeadline() const {
  std::optional<TimePoint> first;
  for (const std::uint32_t index : order_) {
    const TimePoint deadline = slots_[index]->step.deadline();
    first = first.has_value() ? std::min(*first, deadline) : deadline;
  }
  return first;
}

Step* StepEngine::FindStep(StepId id) {
  for (const std::uint32_t index : order_) {
    if (slots_[index]->step.id() == id) return &slots_[index]->step;
  }
  return nullptr;
}

std::uint64_t StepEngine::SinceNs(TimePoint start) const {
  return static_cast<std::uint64_t>((options_.clock->Now() - start).count());
}

}  // namespace switchyard
