#include "worker/expert/expert_engine.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/failure_scope.h"
#include "core/base/status_macros.h"
#include "core/memory_kind.h"
#include "worker/expert/attach_grant.h"
#include "worker/expert/attach_limits.h"
#include "worker/expert/device_fault.h"

namespace switchyard {
namespace {

// Decode work that comes within this time is that of sequences that are being served: a step of the
// largest models takes less.
constexpr Duration kDecodePause = std::chrono::milliseconds(100);

// How long a request waits at most behind others that came later and have shorter deadlines.
constexpr Duration kPatienceMax = std::chrono::seconds(2);

std::uint64_t BytesOfRows(const WireFormat& format, std::uint32_t rows, std::int32_t hidden) {
  return std::uint64_t{rows} * static_cast<std::uint64_t>(RowBytesOf(format, hidden).total());
}

// `deadline`: of the source's steps; zero: none.
Duration PatienceOf(Duration deadline) {
  return deadline > Duration::zero() ? std::min(deadline, kPatienceMax) : kPatienceMax;
}

}  // namespace

absl::StatusOr<ExpertStreams> ExpertStreams::Create(DeviceBackend* device,
                                                    std::function<void()> on_progress) {
  ExpertStreams streams;
  streams.device = device;
  for (const WorkClass of : {WorkClass::kDecode, WorkClass::kPrefill}) {
    SY_ASSIGN_OR_RETURN(streams.by_class[static_cast<std::size_t>(of)],
                        device->MakeStream({.work_class = of, .on_progress = on_progress}));
  }
  return streams;
}

ExpertEngine::ExpertEngine(ExpertEngineOptions options, Transport* transport, ExpertStreams streams)
    : options_(std::move(options)),
      transport_(transport),
      device_(streams.device),
      host_access_(transport->slot_memory() != MemoryKind::kHost || streams.device->host_access()) {
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    lanes_[i].work_class = static_cast<WorkClass>(i);
    lanes_[i].stream = std::move(streams.by_class[i]);
    lanes_[i].batch = std::make_unique<ExpertBatch>(lanes_[i].stream.get(), host_access_);
  }
}

// Destroys the batches first: they read and write the rings of attachments.
ExpertEngine::~ExpertEngine() {
  for (ExpertLane& lane : lanes_) lane.batch.reset();
}

absl::StatusOr<ExpertEngine::EpochRecord*> ExpertEngine::CheckAttach(const AttachRequest& request) {
  // None of these costs memory. What depends on others is told only to who has a grant.
  SY_RETURN_IF_ERROR(CheckRings(
      request, {.slots_max = options_.slots_max, .slot_bytes_max = options_.slot_bytes_max}));
  SY_ASSIGN_OR_RETURN(EpochRecord * record, FindGranted(request));
  const MoeShape& shape = record->epoch.runtime->shape();
  SY_RETURN_IF_ERROR(CheckRingsOfGrant(request, shape));
  if (!host_access_) {
    SY_RETURN_IF_ERROR(CheckRowsToCopy(request, shape, options_.batch.rows_max));
  }
  SY_RETURN_IF_ERROR(CheckRoom(request));
  return record;
}

absl::StatusOr<ExpertEngine::Admitted> ExpertEngine::Admit(const AttachRequest& request) {
  SY_ASSIGN_OR_RETURN(const EpochRecord* record, CheckAttach(request));
  const EpochRuntime& runtime = *record->epoch.runtime;
  SY_ASSIGN_OR_RETURN(std::shared_ptr<void> counted, CountMemory(request, runtime));
  return Admitted{std::move(counted), runtime.shape()};
}

absl::StatusOr<AttachGrant> ExpertEngine::Attach(const AttachRequest& request, AttachAhead ahead) {
  // Again after Admit: the epoch may have been retired, and others may have attached, meanwhile.
  SY_ASSIGN_OR_RETURN(EpochRecord * record, CheckAttach(request));
  if (ahead.counted == nullptr) {
    SY_ASSIGN_OR_RETURN(ahead.counted, CountMemory(request, *record->epoch.runtime));
  }
  auto attachment = std::make_unique<ExpertAttachment>(request, &record->epoch, options_.identity);
  SY_ASSIGN_OR_RETURN(AttachGrant grant, attachment->Open(transport_, device_, std::move(ahead)));
  credits_ += attachment->credits();
  refused_.reserve(credits_);
  for (ExpertLane& lane : lanes_) {
    lane.pending.reserve(credits_);
    lane.running.reserve(credits_);
    // Reserved here, because Poll must not allocate.
    // A batch that runs grows before the next one starts.
    if (!lane.batch->running()) lane.batch->Reserve(credits_);
  }
  broken_.reserve(attachments_.size() + 1);
  attachments_[attachment->number()] = std::move(attachment);
  return grant;
}

absl::Status ExpertEngine::CheckRoom(const AttachRequest& request) const {
  const Own own = OwnOf(request);
  // A grant has no end, so what one makes must have a bound.
  if (own.attachments >= kAttachmentsOfSessionMax) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
        absl::StrFormat("worker %s: session %s has %d attachments here, the most that one may "
                        "have; end one of their streams, or open another session",
                        options_.identity.worker_id, ToHex(request.session), own.attachments),
        {{"worker", options_.identity.worker_id},
         {"session", ToHex(request.session)},
         {"limit", absl::StrCat(kAttachmentsOfSessionMax)}});
  }
  if (attachments_.size() - own.attachments >= options_.attachments_max) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
        absl::StrFormat("worker %s has %d attachments, which is its limit; close a session",
                        options_.identity.worker_id, attachments_.size()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<void>> ExpertEngine::CountMemory(const AttachRequest& request,
                                                                const EpochRuntime& runtime) const {
  const std::uint64_t bytes = ExpertAttachment::BytesOf(request, runtime);
  const std::uint64_t held = attachment_bytes_.held();
  const std::uint64_t most = options_.attachment_bytes_max;
  if (held - OwnOf(request).bytes + bytes <= most) return attachment_bytes_.Add(bytes);
  return MakeError(
      absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
      absl::StrFormat("worker %s may hold %d bytes for attachments and holds %d; this one takes "
                      "%d; request fewer or smaller slots, or close a session",
                      options_.identity.worker_id, most, held, bytes));
}

// A session that attaches again for larger slots ends its other attachment after that one's last
// step, so only the new one counts. CheckRoom allows no third one.
ExpertEngine::Own ExpertEngine::OwnOf(const AttachRequest& request) const {
  Own own;
  for (const auto& [number, attachment] : attachments_) {
    if (attachment->session() != request.session) continue;
    ++own.attachments;
    own.bytes += attachment->bytes();
  }
  return own;
}

absl::Status ExpertEngine::Bind(AttachmentId attachment, const BindRequest& request) {
  SY_ASSIGN_OR_RETURN(ExpertAttachment * to, FindAttachment(attachment));
  const EpochRecord* held = Find(to->deployment(), request.epoch);
  const bool bound =
      held != nullptr && held->epoch.runtime->hash == request.hash && to->Binds(&held->epoch);
  if (!bound) {
    SY_ASSIGN_OR_RETURN(EpochRecord * record,
                        FindServing(to->deployment(), request.epoch, request.hash));
    SY_RETURN_IF_ERROR(to->Bind(&record->epoch));
  }
  to->AnnounceDeadline(request.step_deadline);
  return absl::OkStatus();
}

absl::Status ExpertEngine::Release(AttachmentId attachment, const ReleaseRequest& request) {
  SY_ASSIGN_OR_RETURN(ExpertAttachment * of, FindAttachment(attachment));
  const EpochRecord* record = Find(of->deployment(), request.epoch);
  // A release may cross with the drop of its epoch; both end the binding.
  if (record == nullptr) return absl::OkStatus();
  of->Release(&record->epoch);
  ReportUnbound();
  return absl::OkStatus();
}

void ExpertEngine::Close(AttachmentId attachment) {
  const auto at = attachments_.find(attachment);
  if (at == attachments_.end()) return;
  std::unique_ptr<ExpertAttachment> closed = std::move(at->second);
  attachments_.erase(at);
  credits_ -= closed->credits();
  ForgetPending(closed.get());
  for (const auto& [number, other] : attachments_) {
    if (other->session() != closed->session()) continue;
    // The session attached again for larger slots: its counts go on with the attachment that stays,
    // because a session reads them when it ends.
    other->Absorb(*closed);
    break;
  }
  // The device may be writing into its reply slots; Answer frees the rings with the last request.
  if (closed->running() > 0) {
    closed->Detach();
    closing_.push_back(std::move(closed));
  }
  ReportUnbound();
}

void ExpertEngine::ForgetPending(const ExpertAttachment* attachment) {
  const auto of = [attachment](const PendingRequest& at) { return at.attachment == attachment; };
  std::erase_if(refused_, of);
  for (ExpertLane& lane : lanes_) std::erase_if(lane.pending, of);
}

bool ExpertEngine::Poll(TimePoint now) {
  polled_at_ = now;
  bool worked = transport_->Progress(*this);
  // Until nothing changes: an answer may free the lane for requests that came in the same poll, and
  // a send may break a link.
  for (bool again = true; again;) {
    again = CloseBroken();
    again |= SendRefusals();
    for (ExpertLane& lane : lanes_) {
      // Finish before start: a batch that has ended frees the lane for the requests that wait.
      again |= FinishBatch(lane);
      again |= StartBatch(lane, now);
    }
    worked |= again;
  }
  return KeepTimers(now) || worked;
}

TimePoint ExpertEngine::BatchSince() const {
  return std::min(lanes_[0].started_at, lanes_[1].started_at);
}

std::vector<AttachmentCounters> ExpertEngine::CountersOf(
    SessionId session, const std::optional<std::string>& caller) const {
  std::vector<AttachmentCounters> counters;
  for (const auto& [number, attachment] : attachments_) {
    const bool shown = !caller || attachment->caller() == *caller;
    if (shown && attachment->session() == session) counters.push_back(attachment->Snapshot());
  }
  return counters;
}

ExpertStats ExpertEngine::stats() const {
  ExpertStats stats = stats_;
  stats.attachments = attachments_.size();
  return stats;
}

void ExpertEngine::OnFrame(Link& link, const HeaderBytes& raw, const FrameHeader& header,
                           std::span<const std::byte> payload) {
  auto* attachment = static_cast<ExpertAttachment*>(link.owner());
  FrameDrop drop = FrameDrop::kNone;
  switch (attachment->OnFrame(raw, header, payload, &drop)) {
    case ExpertAttachment::Arrival::kTaken: {
      // Refusals have a queue of their own, so that an error is not held up by the batches.
      const bool refused = !attachment->credit(header.request_slot).intake.refusal.ok();
      auto& queue = refused ? refused_ : LaneOf(attachment->work_class()).pending;
      const bool traced =
          options_.tracer->Samples({attachment->session(), header.source_incarnation, header.step});
      // A poll begins before its frames are seen: a span would begin before the source's.
      const TimePoint arrived = traced ? MeasuredNow() : polled_at_;
      queue.push_back({.attachment = attachment,
                       .credit = header.request_slot,
                       .due = polled_at_ + PatienceOf(attachment->step_deadline()),
                       .arrived = arrived,
                       .traced = traced});
      return;
    }
    case ExpertAttachment::Arrival::kDropped:
      transport_->CountDrop(drop);
      return;
    // The first copy is being served and will be answered, so a second answer would confuse the
    // source.
    case ExpertAttachment::Arrival::kDuplicate:
      ++stats_.duplicates;
      return;
  }
}

void ExpertEngine::OnLinkDown(Link& link, const absl::Status& why) {
  auto* attachment = static_cast<ExpertAttachment*>(link.owner());
  // Not closed here: the transport is iterating over its links.
  if (!attachment->detached()) SendFailed(attachment, why);
}

absl::StatusOr<ExpertAttachment*> ExpertEngine::FindAttachment(AttachmentId attachment) const {
  const auto at = attachments_.find(attachment);
  if (at != attachments_.end()) return at->second.get();
  return MakeError(absl::StatusCode::kNotFound, Reason::kUnknownSession,
                   absl::StrFormat("worker %s has no attachment %d; attach again",
                                   options_.identity.worker_id, attachment.value));
}

bool ExpertEngine::SendRefusals() {
  if (refused_.empty()) return false;
  for (const PendingRequest& at : refused_) {
    ++stats_.refused;
    if (at.traced) Trace(at, {}, {}, at.attachment->credit(at.credit).intake.refusal);
    if (absl::Status sent = at.attachment->SendRefusal(at.attachment->credit(at.credit));
        !sent.ok()) {
      SendFailed(at.attachment, sent);
    }
  }
  refused_.clear();
  return true;
}

// Starts a batch of the request that is due first and of all others with its key, in the order of
// their arrival, up to the rows of a batch. The first request chooses the key; as each is due at a
// fixed time, none can starve. A session that records magnitudes has batches of its own, by its
// key.
bool ExpertEngine::StartBatch(ExpertLane& lane, TimePoint now) {
  if (lane.batch->running() || lane.pending.empty()) return false;
  if (lane.work_class == WorkClass::kDecode) decoding_until_ = now + kDecodePause;
  const auto chosen = std::ranges::min_element(lane.pending, {}, &PendingRequest::due);
  // To the front, where it always fits. The others keep their order.
  std::rotate(lane.pending.begin(), chosen, std::next(chosen));
  const PendingRequest first = lane.pending.front();
  const ExpertAttachment::Credit& like = first.attachment->credit(first.credit);
  const BatchKey key = first.attachment->KeyOf(like);
  lane.batch->Reserve(lane.pending.capacity());
  const BatchMemory& memory =
      like.epoch.memory->by_class[static_cast<std::size_t>(lane.work_class)];
  // Shares ownership with the epoch's memory, of which it is a part.
  lane.batch->Begin(key, like.epoch.runtime,
                    std::shared_ptr<const BatchMemory>(like.epoch.memory, &memory));
  lane.running.clear();
  std::uint32_t rows_max = RowsMax(memory, now);
  std::size_t kept = 0;
  for (const PendingRequest& at : lane.pending) {
    const ExpertAttachment::Credit& credit = at.attachment->credit(at.credit);
    // Rows that the device cannot reach pass through staging memory, which holds a short batch.
    const std::uint32_t most = host_access_ || at.attachment->mapped()
                                   ? rows_max
                                   : std::min(rows_max, options_.batch.rows_max);
    // The first request always fits, however many rows it has; otherwise it would wait for ever.
    const bool fits = lane.running.empty() || lane.batch->rows() + credit.header.rows <= most;
    if (!fits || at.attachment->KeyOf(credit) != key) {
      lane.pending[kept++] = at;
      continue;
    }
    rows_max = most;
    lane.batch->Add(at.attachment->InputOf(credit));
    lane.running.push_back(at);
    at.attachment->BeginRun();
  }
  // Compacted in place, which keeps the order of what waits and allocates nothing.
  lane.pending.resize(kept);
  ++stats_.batches;
  BatchTimes& times = options_.times->Of(lane.work_class, key.mode);
  const TimePoint started_at = MeasuredNow();
  lane.began = lane.ended = started_at;
  for (const PendingRequest& at : lane.running) times.dispatch.Observe(started_at - at.arrived);
  times.rows.Observe(std::uint64_t{lane.batch->rows()});
  const absl::Status started = lane.batch->Start();
  if (started.ok()) {
    lane.started_at = started_at;
    return true;
  }
  // Nothing was enqueued, so nothing will complete: every source gets the error now and not its
  // timeout.
  for (const PendingRequest& at : lane.running) Answer(at, lane, started, 0);
  lane.running.clear();
  return true;
}

// The kernels of a decode batch wait for those of prefill that run, however high their priority,
// and these take as long as their batch is large. So large batches are for when nothing decodes.
std::uint32_t ExpertEngine::RowsMax(const BatchMemory& memory, TimePoint now) const {
  return now < decoding_until_ ? std::min(memory.rows_max, options_.batch.rows_max)
                               : memory.rows_max;
}

bool ExpertEngine::FinishBatch(ExpertLane& lane) {
  if (!lane.batch->running() || !lane.batch->done()) return false;
  const TimePoint ended_at = MeasuredNow();
  lane.ended = ended_at;
  BatchTimes& times = options_.times->Of(lane.work_class, lane.batch->mode());
  const absl::Status status = lane.batch->Finish();
  times.compute.Observe(ended_at - std::exchange(lane.started_at, TimePoint::max()));
  for (std::size_t i = 0; i < lane.running.size(); ++i) {
    Answer(lane.running[i], lane, status, lane.batch->inputs()[i].nan_rows);
  }
  // Not where every request was refused.
  if (answered_at_ >= ended_at) times.combine.Observe(answered_at_ - ended_at);
  lane.running.clear();
  // An epoch counts as bound while a batch runs on it.
  ReportUnbound();
  return true;
}

void ExpertEngine::Answer(const PendingRequest& at, const ExpertLane& lane,
                          const absl::Status& status, std::uint32_t nan_rows) {
  ExpertAttachment* attachment = at.attachment;
  attachment->EndRun();
  // Reported once. The device stays broken, and repeats would bury the first cause.
  if (IsDeviceFault(status) && !std::exchange(device_faulted_, true) && options_.on_device_fault) {
    options_.on_device_fault(status);
  }
  // The attachment was closed meanwhile: there is no source to answer, and its last request frees
  // it.
  const auto closing =
      std::find_if(closing_.begin(), closing_.end(),
                   [attachment](const auto& closed) { return closed.get() == attachment; });
  if (closing != closing_.end()) {
    if (attachment->running() == 0) closing_.erase(closing);
    return;
  }
  ExpertAttachment::Credit& credit = attachment->credit(at.credit);
  if (at.traced) Trace(at, lane.began, lane.ended, status);
  absl::Status sent;
  if (status.ok()) {
    ++stats_.requests;
    stats_.rows += credit.header.rows;
    stats_.nan_rows += nan_rows;
    sent = attachment->SendResult(credit, nan_rows);
    answered_at_ = MeasuredNow();
    const FrameHeader& header = credit.header;
    options_.times->Request(lane.work_class, header.mode, header.format.dtype, attachment->path())
        .Observe(answered_at_ - at.arrived);
  } else {
    ++stats_.refused;
    credit.intake.refusal = status;
    sent = attachment->SendRefusal(credit);
  }
  if (!sent.ok()) SendFailed(attachment, sent);
}

// Before the answer goes out, so that the span ends before the source's, which contains it.
void ExpertEngine::Trace(const PendingRequest& at, TimePoint began, TimePoint ended,
                         const absl::Status& status) const {
  const FrameHeader& header = at.attachment->credit(at.credit).header;
  const std::int32_t hidden = at.attachment->hidden();
  TraceRecord record{.key = {at.attachment->session(), header.source_incarnation, header.step},
                     .part = TracedPart::kServe,
                     .mode = header.mode,
                     .dtype = header.format.dtype,
                     .layer = header.layer,
                     .epoch = header.epoch,
                     .chunk = header.chunk,
                     .rows = header.rows,
                     .request_bytes = BytesOfRows(header.format, header.rows, hidden),
                     .reply_bytes = BytesOfRows(kBf16Format, header.rows, hidden),
                     .times = {at.arrived, began, ended, MeasuredNow()}};
  record.SetWorker(options_.identity.worker_id);
  record.SetStatus(status);
  options_.tracer->Push(record);
}

void ExpertEngine::SendFailed(ExpertAttachment* attachment, const absl::Status& why) {
  // Several sends of one poll may fail on one link; on_closed comes once.
  const bool known = std::any_of(broken_.begin(), broken_.end(), [attachment](const auto& broken) {
    return broken.first == attachment;
  });
  if (!known) broken_.emplace_back(attachment, why);
}

bool ExpertEngine::CloseBroken() {
  // Closing happens here and not where a send fails, because there a caller iterates over
  // attachments or queues.
  if (broken_.empty()) return false;
  for (const auto& [attachment, why] : broken_) {
    // Close destroys the attachment, so its number is taken before.
    const AttachmentId number = attachment->number();
    Close(number);
    if (options_.on_closed) options_.on_closed(number, why);
  }
  broken_.clear();
  return true;
}

}  // namespace switchyard
