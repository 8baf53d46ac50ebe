#include "worker/source/p2p/step_engine.h"

#include <algorithm>
#include <limits>
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

// The device holds up the step: no worker owes it anything.
absl::Status DeviceLate(const Step& step) {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kStepDeadline,
                   absl::StrFormat("layer %d: this process's device did not finish the step before "
                                   "its deadline; retry",
                                   step.layer().value),
                   {{"layer", absl::StrCat(step.layer().value)}});
}

// An attachment was lost or a plan has changed since the runner said that it takes such steps.
absl::Status NotOnDevice(LayerId layer) {
  return MakeError(
      absl::StatusCode::kUnimplemented, Reason::kUnsupported,
      absl::StrFormat("layer %d: the device of the tensors does not reach the rings of "
                      "all workers; pass x and y through memory of the host",
                      layer.value),
      {{"layer", absl::StrCat(layer.value)}});
}

// A token has at most so many bytes of BF16 rows.
std::size_t BytesOfToken(const MoeShape& shape, DispatchMode mode, std::size_t workers) {
  const auto top_k = static_cast<std::size_t>(shape.top_k);
  // A plan may have no workers, and no rows then.
  const std::size_t rows =
      mode == DispatchMode::kLowLatency ? top_k : std::clamp<std::size_t>(workers, 1, top_k);
  return rows * static_cast<std::size_t>(shape.hidden) * sizeof(Bf16);
}

}  // namespace

StepEngine::StepEngine(StepEngineOptions options)
    : options_(std::move(options)),
      lanes_{StreamWork(options_.stream), StreamWork(options_.tensor_encodes),
             StreamWork(options_.tensor_sums)} {
  // The longest that it can get: Submit must not allocate once the pool is full.
  in_flight_.reserve(options_.steps_max);
}

absl::StatusOr<StepTicket> StepEngine::Submit(const StepRequest& request, BoundPlan* bound_plan,
                                              TimePoint now) {
  SY_ASSIGN_OR_RETURN(const StepLimits limits, LimitsOf(*bound_plan, request.layer));
  SY_RETURN_IF_ERROR(ValidateStep(request, limits));
  if (request.on_device && limits.device_tokens_min == 0) return NotOnDevice(request.layer);
  SY_ASSIGN_OR_RETURN(const std::uint32_t index, FreeSlot());
  Slot& slot = *slots_[index];
  // Bounded, because a gateway's client sets it.
  const Duration wait = std::min(
      request.deadline > Duration::zero() ? request.deadline : options_.request.step_deadline,
      kStepDeadlineMax);
  const TimePoint started = options_.clock->Now();
  const StepId id{last_step_ + 1};
  slot.step.trace().Begin(options_.tracer->Samples(KeyOf(id)), started);
  SY_RETURN_IF_ERROR(slot.step.Begin(id, request, bound_plan, *bound_plan->FindLayer(request.layer),
                                     options_.request.y_dtype, options_.chunk_rows, now + wait));
  SY_RETURN_IF_ERROR(CheckAttached(slot.step));
  // From here on the step ends like any other. Before here nothing counts it, so that a refused
  // request leaves neither a ticket nor a hold on the epoch.
  ++last_step_;
  ++times_.steps;
  times_.device_steps += request.on_device ? 1 : 0;
  const TimePoint planned = options_.clock->Now();
  times_.plan_ns += static_cast<std::uint64_t>((planned - started).count());
  slot.step.trace().Planned(slot.step.chunk_plan().chunks().size(), planned);
  slot.used = true;
  ++slot.generation;
  ++bound_plan->steps;
  in_flight_.push_back(index);
  // Tokens without experts, or no tokens at all, get no reply to end them.
  SumTokens(slot.step, now);
  Pump(now);
  return StepTicket{index, slot.generation};
}

absl::StatusOr<StepLimits> StepEngine::LimitsOf(const BoundPlan& bound_plan, LayerId layer) const {
  const BoundLayer* bound = bound_plan.FindLayer(layer);
  if (bound == nullptr) return UnknownLayer(bound_plan.plan, layer);
  const OpenSessionRequest& session = options_.request;
  return StepLimits{.shape = bound_plan.plan.shape,
                    .y_dtype = session.y_dtype,
                    .strict = session.strict,
                    .max_tokens = MaxTokens(bound->mode, bound->max_tokens_per_step, session),
                    .step_deadline = session.step_deadline,
                    .device_tokens_min = DeviceTokensMin(bound_plan, *bound)};
}

// A strict session looks at values, which only the host does.
std::int32_t StepEngine::DeviceTokensMin(const BoundPlan& bound, const BoundLayer& layer) const {
  if (options_.tensor_encodes == nullptr || options_.request.strict) return 0;
  const auto reached = [](const Attachment* worker) { return worker->device_reaches(); };
  if (layer.tensor_codecs.empty() || !std::ranges::all_of(bound.workers, reached)) return 0;
  const std::size_t bytes = BytesOfToken(bound.plan.shape, layer.mode, bound.workers.size());
  const std::size_t tokens = options_.tensor_bytes_min / bytes;
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  return tokens < kMost ? std::max(static_cast<std::int32_t>(tokens), 1) : kMost;
}

absl::StatusOr<std::uint32_t> StepEngine::FreeSlot() {
  // A slot stays used until Take, not until its step ends: the ticket must find the result.
  for (std::uint32_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i]->used) return i;
  }
  if (slots_.size() < options_.steps_max) {
    slots_.push_back(std::make_unique<Slot>());
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kNoCredits,
      absl::StrFormat("%d steps of this session were not waited for yet; wait for one first",
                      options_.steps_max),
      {{"limit", absl::StrCat(options_.steps_max)}});
}

// Refuses at once what could only fail at its deadline.
absl::Status StepEngine::CheckAttached(const Step& step) const {
  const BoundPlan& bound = *step.bound_plan();
  for (std::size_t w = 0; w < bound.workers.size(); ++w) {
    const Attachment& attachment = *bound.workers[w];
    if (attachment.state == Attachment::State::kReady && bound.confirmed[w]) continue;
    // A step that has no rows for a lost worker can do without it.
    if (step.NextUnsent(static_cast<std::int32_t>(w)) < 0) continue;
    return WorkerError(Reason::kWorkerLost, step, attachment,
                       absl::StrCat("is not attached (", attachment.down_why.message(),
                                    "); retry when the next epoch is committed"));
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> StepEngine::IsDone(const StepTicket& ticket) const {
  if (ticket.slot >= slots_.size() || !slots_[ticket.slot]->used ||
      slots_[ticket.slot]->generation != ticket.generation) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder,
                     "the step is already complete or was never submitted; submit it again");
  }
  return slots_[ticket.slot]->step.done();
}

absl::Status StepEngine::Take(const StepTicket& ticket, TimePoint now) {
  SY_ASSIGN_OR_RETURN(const bool done, IsDone(ticket));
  Slot& slot = *slots_[ticket.slot];
  if (!done) {
    FailStep(
        slot.step,
        MakeError(absl::StatusCode::kCancelled, Reason::kUnspecified, "given up by its caller"),
        now);
    // The caller has its memory back when this returns, so this is not left to a later poll.
    if (!slot.step.done()) Drain(now);
    // Before the slot can be used again: the list of steps in flight names slots.
    RetireDone();
  }
  // Chunks of a step that was given up may still be on their way: the credit table remembers them,
  // so that the slot can carry another step.
  slot.used = false;
  return slot.step.status();
}

bool StepEngine::HasEncodedEnough() {
  put_off_ = encoded_bytes_ >= options_.piece_bytes;
  return put_off_;
}

bool StepEngine::Pump(TimePoint now, Piece piece) {
  if (piece == Piece::kNew) {
    encoded_bytes_ = 0;
    put_off_ = false;
  }
  bool sent = PollStream(now);
  sent |= PollOwn(now, piece);
  // Oldest step first on every attachment: two steps that took credits from each other could both
  // wait for ever. Own experts last, so that the other workers compute meanwhile. By index: an
  // answer that comes from within Send ends steps, and so shortens the list.
  for (std::size_t i = 0; i < in_flight_.size(); ++i) {
    Step& step = slots_[in_flight_[i]]->step;
    if (step.ended()) continue;
    for (std::size_t w = 0; w < step.bound_plan()->workers.size(); ++w) {
      Attachment& attachment = *step.bound_plan()->workers[w];
      if (attachment.own) continue;
      sent |= PumpWorker(step, static_cast<std::int32_t>(w), attachment, now);
    }
  }
  if (options_.own_experts != nullptr) {
    for (std::size_t i = 0; i < in_flight_.size(); ++i) {
      sent |= PumpOwn(slots_[in_flight_[i]]->step, now);
    }
  }
  RetireDone();
  return sent;
}

bool StepEngine::PumpWorker(Step& step, std::int32_t worker, Attachment& attachment,
                            TimePoint now) {
  bool begun = false;
  while (!step.ended()) {
    const std::int32_t next = step.NextUnsent(worker);
    if (next < 0 || attachment.credits.free() == 0) break;
    if (!EncodesOf(step).has_room_for_encode() || HasEncodedEnough()) break;
    const auto chunk = static_cast<std::uint32_t>(next);
    const auto credit = attachment.credits.Reserve();
    step.MarkEncoding(chunk, *credit);
    if (const absl::Status status = BeginFrame(step, chunk); !status.ok()) {
      step.MarkEncoded();
      attachment.credits.Release(*credit);
      FailStep(step, status, now);
      break;
    }
    // A device that works in the call has encoded the rows: the frame goes out before the next one
    // is begun.
    PollStream(now);
    begun = true;
  }
  return begun;
}

FrameLayout StepEngine::LayoutOf(const Step& step, const Chunk& chunk) const {
  const BoundLayer& layer = step.bound_layer();
  return LayoutOfRequest(
      {.mode = layer.mode,
       .format = layer.codecs[static_cast<std::size_t>(chunk.worker)]->format(),
       .rows = chunk.rows,
       .hidden = step.bound_plan()->plan.shape.hidden,
       .top_k = step.request().top_k,
       .local_slots = layer.local_slots[static_cast<std::size_t>(chunk.worker)]});
}

void StepEngine::WriteMetadata(const Step& step, const Chunk& chunk,
                               std::span<std::byte> out) const {
  WriteRequestMetadata(step.bound_layer().mode,
                       {.rows = step.chunk_plan().RowsOf(chunk),
                        .slot_counts = step.chunk_plan().SlotCountsOf(chunk),
                        .worker = WorkerOrdinal{chunk.worker},
                        .top_k = step.request().top_k,
                        .slot_of_pair = step.plan().slot_of_pair,
                        .worker_of_pair = step.plan().worker_of_pair,
                        .weights = step.weights()},
                       out);
}

void StepEngine::OnFrame(Attachment& attachment, const HeaderBytes& raw, const FrameHeader& header,
                         std::span<const std::byte> payload, TimePoint now) {
  // A reply of an earlier life of the worker belongs to no step.
  const auto sender = static_cast<std::uint32_t>(attachment.worker.incarnation.low);
  if (header.kind == FrameKind::kRequest || header.source_incarnation != sender) {
    options_.transport->CountDrop(FrameDrop::kField);
    return;
  }
  // A number from the wire is never an index before it is checked.
  if (header.reply_slot >= attachment.credits.size()) {
    options_.transport->CountDrop(FrameDrop::kSlot);
    return;
  }
  // The CRC covers header and metadata: a result has no metadata, an error nothing else. Rows are
  // not covered, since checking them would cost a pass over memory that the sum reads anyway.
  const bool is_error = header.kind == FrameKind::kError;
  ErrorBody error;
  const FrameDrop drop = is_error ? ReadErrorFrame(raw, payload, &error) : CheckCrc(raw, {});
  if (drop != FrameDrop::kNone) {
    options_.transport->CountDrop(drop);
    return;
  }
  TakeReply(attachment, header, is_error ? &error : nullptr, payload, now);
  // The reply may have freed a credit that a chunk waits for.
  if (!put_off_) Pump(now, Piece::kSame);
}

// `error`: the body of an error frame; nullptr for a result.
void StepEngine::TakeReply(Attachment& attachment, const FrameHeader& header,
                           const ErrorBody* error, std::span<const std::byte> payload,
                           TimePoint now) {
  // The credit decides first: a late reply frees it although its step is long gone.
  if (!Accept(attachment, header, now)) return;
  // A credit that is not given up has its step in flight.
  Step& step = *FindStep(header.step);
  if (error != nullptr) {
    const auto chunk = static_cast<std::uint32_t>(step.ChunkAt(attachment, header.chunk));
    FailStep(step, StatusOfError(*error, step, chunk), now);
  } else {
    OnResult(step, attachment, header, payload, now);
  }
}

bool StepEngine::Accept(Attachment& attachment, const FrameHeader& header, TimePoint now) {
  switch (attachment.credits.Accept(
      header.reply_slot, {header.step, header.layer, header.chunk, header.attempt}, now)) {
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
  const Chunk& cut = step.chunk_plan().chunks()[chunk];
  const FrameLayout layout = LayoutOfResult(cut.rows, step.bound_plan()->plan.shape.hidden);
  const bool on_device = step.RowsOnDevice(chunk);
  const std::byte* const slot = on_device ? attachment.device_rings->inbound(header.reply_slot)
                                          : payload.data() - kFrameHeaderBytes;
  step.trace().Answered(chunk, now);
  step.MarkAnswered(chunk, reinterpret_cast<const Bf16*>(slot + layout.rows_begin));
  const auto where = [](bool device) { return device ? " on the device" : ""; };
  // A reply that disagrees with its chunk must not be summed, not even in part. The credit comes
  // back all the same: its reply has come.
  if (header.rows != cut.rows || header.payload_bytes != layout.payload_bytes() ||
      header.epoch != step.bound_plan()->plan.epoch ||
      ((header.flags & kRowsOnDevice) != 0) != on_device) {
    FailStep(
        step,
        MakeError(absl::StatusCode::kInternal, Reason::kFrame,
                  absl::StrFormat("worker %s, layer %d: answered %d rows of epoch %d%s instead of "
                                  "%d rows of epoch %d%s; the reply was not used",
                                  attachment.worker.id, step.layer().value, header.rows,
                                  header.epoch.value, where(header.flags != 0), cut.rows,
                                  step.bound_plan()->plan.epoch.value, where(on_device)),
                  {{"worker", attachment.worker.id},
                   {"layer", absl::StrCat(step.layer().value)},
                   {"rows", absl::StrCat(header.rows)}}),
        now);
    return;
  }
  SumTokens(step, now);
}

void StepEngine::FailStep(Step& step, absl::Status why, TimePoint now) {
  // A step ends once: a second failure must not touch credits that carry another step by now.
  if (step.ended()) return;
  step.Fail(std::move(why));
  GiveUp(step, Step::ChunkState::kSent, now);
  // The device reads answered rows until its sum has ended (OnSummed).
  if (!step.sum_running()) GiveUp(step, Step::ChunkState::kAnswered, now);
}

void StepEngine::GiveUp(Step& step, Step::ChunkState state, TimePoint now) {
  for (std::uint32_t c = 0; c < step.chunk_plan().chunks().size(); ++c) {
    if (step.chunk_state(c) != state) continue;
    Attachment& attachment = step.AttachmentOf(c);
    const std::uint32_t credit = step.credit_of(c);
    // The credits of a lost attachment went with it, whatever life it has now.
    if (credit == kNoCredit || credit >= attachment.credits.size()) continue;
    // Given up, not released: the worker may still write the reply slot, and the next chunk in the
    // request slot would overwrite what it reads.
    attachment.credits.GiveUp(credit, now);
    ++given_up_;
  }
}

void StepEngine::FailOn(Attachment& attachment, const absl::Status& why, TimePoint now) {
  for (const std::uint32_t index : in_flight_) {
    Step& step = slots_[index]->step;
    // Steps that the worker has no part in go on.
    if (step.ended() || !step.Awaits(attachment)) continue;
    FailStep(step,
             WorkerError(Reason::kWorkerLost, step, attachment,
                         absl::StrCat("lost (", why.message(),
                                      "); retry when the next epoch is committed")),
             now);
  }
  // The caller unmaps the rings next, which the device may still read and write.
  Drain(now);
  RetireDone();
}

void StepEngine::FailAll(const absl::Status& why, TimePoint now) {
  for (const std::uint32_t index : in_flight_) FailStep(slots_[index]->step, why, now);
  Drain(now);
  RetireDone();
}

bool StepEngine::Expire(TimePoint now) {
  bool expired = false;
  for (const std::uint32_t index : in_flight_) {
    Step& step = slots_[index]->step;
    if (step.ended() || step.deadline() > now) continue;
    const Attachment* awaited = step.FirstAwaited();
    FailStep(step,
             awaited == nullptr
                 ? DeviceLate(step)
                 : WorkerError(Reason::kStepDeadline, step, *awaited,
                               "did not answer before the step's deadline; retry, or open the "
                               "session with a longer step_deadline"),
             now);
    expired = true;
  }
  RetireDone();
  return expired;
}

void StepEngine::RetireDone() {
  std::erase_if(in_flight_, [this](std::uint32_t index) {
    Step& step = slots_[index]->step;
    if (!step.done()) return false;
    if (step.trace().traced()) {
      step.trace().End(step, KeyOf(step.id()), options_.clock->Now(), options_.tracer.get());
    }
    // Its epoch can be released once no step is left on it.
    --step.bound_plan()->steps;
    return true;
  });
}

StepKey StepEngine::KeyOf(StepId step) const {
  return {options_.session, static_cast<std::uint32_t>(options_.incarnation.low), step};
}

TimePoint StepEngine::NextDeadline() const {
  TimePoint first = TimePoint::max();
  for (const std::uint32_t index : in_flight_) {
    // One that only waits for the device is woken by it.
    const Step& step = slots_[index]->step;
    if (!step.ended()) first = std::min(first, step.deadline());
  }
  return first;
}

// A search of at most steps_max entries; few steps are in flight at a time.
Step* StepEngine::FindStep(StepId id) {
  for (const std::uint32_t index : in_flight_) {
    if (slots_[index]->step.id() == id) return &slots_[index]->step;
  }
  return nullptr;
}

std::uint64_t StepEngine::SinceNs(TimePoint start) const {
  return static_cast<std::uint64_t>((options_.clock->Now() - start).count());
}

}  // namespace switchyard
