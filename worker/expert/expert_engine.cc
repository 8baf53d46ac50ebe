#include "worker/expert/expert_engine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/failure_scope.h"
#include "core/base/status_macros.h"
#include "core/memory_kind.h"

namespace switchyard {
namespace {

// The smallest slot holds a header and an error with the longest text: a worker must be able to
// refuse whatever the slot size.
const auto kSlotBytesMin = static_cast<std::uint32_t>(LayoutOfError(kErrorTextMax).frame_bytes);

absl::Status BadRing(Reason reason, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason, absl::StrCat("reply ring: ", what));
}

bool IsDeviceFault(const absl::Status& status) {
  return !status.ok() && ScopeOf(status) == FailureScope::kWorker;
}

absl::Status CheckSlotBytes(absl::string_view of, std::uint32_t bytes, std::uint32_t most) {
  if (bytes >= kSlotBytesMin && bytes <= most) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge,
                   absl::StrFormat("%s ring: slots have %d bytes; %d to %d are allowed", of, bytes,
                                   kSlotBytesMin, most));
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
    lanes_[i].stream = std::move(streams.by_class[i]);
    lanes_[i].batch = std::make_unique<ExpertBatch>(lanes_[i].stream.get(), host_access_);
  }
}

// Destroys the batches first: they read and write the rings of attachments.
ExpertEngine::~ExpertEngine() {
  for (Lane& lane : lanes_) lane.batch.reset();
}

void ExpertEngine::Activate(StagedEpoch staged) {
  auto record = std::make_unique<EpochRecord>();
  record->epoch = {.runtime = std::move(staged.runtime), .memory = std::move(staged.memory)};
  epochs_.push_back(std::move(record));
}

void ExpertEngine::Retire(absl::string_view deployment, Epoch epoch, TimePoint now,
                          std::function<void()> unbound) {
  EpochRecord* record = Find(deployment, epoch);
  if (record == nullptr) {
    unbound();
    return;
  }
  // From now on FindServing refuses new bindings; those that exist go on until the grace ends.
  record->retiring = true;
  record->close_at = now + options_.retire_grace;
  record->unbound = std::move(unbound);
  // An epoch without a binding is reported at once: no later event would do it.
  ReportUnbound();
}

StagedEpoch ExpertEngine::Drop(absl::string_view deployment, Epoch epoch) {
  EpochRecord* record = Find(deployment, epoch);
  if (record == nullptr) return {};
  CloseBound(*record);
  // Batches that still run share ownership, so the weights outlive this record if they must.
  StagedEpoch dropped{.runtime = std::move(record->epoch.runtime),
                      .memory = std::move(record->epoch.memory)};
  std::erase_if(epochs_, [record](const auto& held) { return held.get() == record; });
  return dropped;
}

absl::StatusOr<AttachGrant> ExpertEngine::Attach(const AttachRequest& request) {
  // The limits come first: a request beyond them must not cost memory.
  SY_RETURN_IF_ERROR(CheckRequest(request));
  SY_ASSIGN_OR_RETURN(EpochRecord * record,
                      FindServing(request.deployment, request.epoch, request.hash));
  if (!host_access_) SY_RETURN_IF_ERROR(CheckRows(request, record->epoch.runtime->shape()));
  auto attachment = std::make_unique<ExpertAttachment>(request, &record->epoch, options_.identity);
  SY_ASSIGN_OR_RETURN(AttachGrant grant, attachment->Open(transport_, device_));
  credits_ += attachment->credits();
  refused_.reserve(credits_);
  for (Lane& lane : lanes_) {
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

// Refuses at attach what could never be copied: a device without host access has room for rows_max
// rows of one request.
absl::Status ExpertEngine::CheckRows(const AttachRequest& request, const MoeShape& shape) const {
  // The answer to a request has a header before its rows.
  const std::size_t bytes = std::max<std::size_t>(request.reply_ring.slot_bytes, kFrameHeaderBytes);
  const std::size_t rows = RequestRowsMax(bytes - kFrameHeaderBytes, shape);
  if (rows <= options_.batch.rows_max) return absl::OkStatus();
  return BadRing(Reason::kMessageTooLarge,
                 absl::StrFormat(
                     "slots of %d bytes hold up to %d rows, but worker %s copies at most %d to its "
                     "device at once; use smaller slots",
                     request.reply_ring.slot_bytes, rows, options_.identity.worker_id,
                     options_.batch.rows_max));
}

absl::Status ExpertEngine::CheckRequest(const AttachRequest& request) const {
  const RingOffer& ring = request.reply_ring;
  if (ring.incarnation.empty()) return BadRing(Reason::kBadRequest, "incarnation is missing");
  if (ring.slots == 0 || ring.slots > options_.slots_max) {
    return BadRing(Reason::kBadRequest, absl::StrFormat("%d slots; 1 to %d are allowed", ring.slots,
                                                        options_.slots_max));
  }
  const std::uint32_t request_slot_bytes = request.request_slot_bytes_or_reply();
  SY_RETURN_IF_ERROR(CheckSlotBytes("reply", ring.slot_bytes, options_.slot_bytes_max));
  SY_RETURN_IF_ERROR(CheckSlotBytes("request", request_slot_bytes, options_.slot_bytes_max));
  const Replaced replaced = ReplacedBy(request);
  if (attachments_.size() - replaced.attachments >= options_.attachments_max) {
    return MakeError(
        absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
        absl::StrFormat("worker %s has %d attachments, which is its limit; close a session",
                        options_.identity.worker_id, attachments_.size()));
  }
  // In 64 bits: slots times slot bytes of the largest ring is beyond 32.
  const std::uint64_t bytes = std::uint64_t{ring.slots} * request_slot_bytes;
  if (transport_->stats().ring_bytes - replaced.ring_bytes + bytes > options_.ring_bytes_max) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrFormat("worker %s may hold %d bytes of rings; request fewer or "
                                     "smaller slots",
                                     options_.identity.worker_id, options_.ring_bytes_max));
  }
  return absl::OkStatus();
}

// A session that attaches again for larger slots ends its other attachment after that one's last
// step, so only the new one counts. A session that has two already is not exempt, so the limits
// hold.
ExpertEngine::Replaced ExpertEngine::ReplacedBy(const AttachRequest& request) const {
  Replaced replaced;
  for (const auto& [number, attachment] : attachments_) {
    if (attachment->session() != request.session) continue;
    ++replaced.attachments;
    replaced.ring_bytes += attachment->ring_bytes();
  }
  return replaced.attachments == 1 ? replaced : Replaced{};
}

absl::Status ExpertEngine::Bind(AttachmentId attachment, const BindRequest& request) {
  SY_ASSIGN_OR_RETURN(ExpertAttachment * to, FindAttachment(attachment));
  SY_ASSIGN_OR_RETURN(EpochRecord * record,
                      FindServing(to->deployment(), request.epoch, request.hash));
  return to->Bind(&record->epoch);
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
  for (Lane& lane : lanes_) std::erase_if(lane.pending, of);
}

bool ExpertEngine::Poll(TimePoint now) {
  bool worked = transport_->Progress(*this);
  // Until nothing changes: an answer may free the lane for requests that came in the same poll, and
  // a send may break a link.
  for (bool again = true; again;) {
    again = CloseBroken();
    again |= SendRefusals();
    for (std::size_t i = 0; i < lanes_.size(); ++i) {
      // Finish before start: a batch that has ended frees the lane for the requests that wait.
      again |= FinishBatch(lanes_[i]);
      again |= StartBatch(lanes_[i], i);
    }
    worked |= again;
  }
  return KeepTimers(now) || worked;
}

std::optional<TimePoint> ExpertEngine::NextDeadline() const {
  std::optional<TimePoint> next;
  for (const auto& record : epochs_) {
    // An epoch that has been reported as unbound has nothing left to close.
    if (record->retiring && record->unbound && (!next || record->close_at < *next)) {
      next = record->close_at;
    }
  }
  return next;
}

std::vector<AttachmentCounters> ExpertEngine::CountersOf(SessionId session) const {
  std::vector<AttachmentCounters> counters;
  for (const auto& [number, attachment] : attachments_) {
    if (attachment->session() == session) counters.push_back(attachment->Snapshot());
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
      queue.push_back({.attachment = attachment, .credit = header.request_slot});
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

absl::StatusOr<ExpertEngine::EpochRecord*> ExpertEngine::FindServing(absl::string_view deployment,
                                                                     Epoch epoch,
                                                                     const PlanHash& hash) {
  EpochRecord* record = Find(deployment, epoch);
  if (record != nullptr && !record->retiring && record->epoch.runtime->hash == hash) return record;
  // A source that sees STALE_EPOCH fetches the plan again whichever of the three it was; the text
  // is for the operator.
  const char* why = "is not committed here";
  if (record != nullptr) why = "was committed here with another plan hash";
  if (record != nullptr && record->retiring) why = "is being retired";
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                   absl::StrFormat("worker %s: epoch %d of %s %s; fetch the current plan",
                                   options_.identity.worker_id, epoch.value, deployment, why),
                   {{"worker", options_.identity.worker_id},
                    {"deployment", std::string(deployment)},
                    {"epoch", absl::StrCat(epoch.value)}});
}

ExpertEngine::EpochRecord* ExpertEngine::Find(absl::string_view deployment, Epoch epoch) {
  for (const auto& record : epochs_) {
    const EpochRuntime& runtime = *record->epoch.runtime;
    if (runtime.epoch() == epoch && deployment == runtime.deployment()) return record.get();
  }
  return nullptr;
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
    if (absl::Status sent = at.attachment->SendRefusal(at.attachment->credit(at.credit));
        !sent.ok()) {
      SendFailed(at.attachment, sent);
    }
  }
  refused_.clear();
  return true;
}

// Starts a batch of the first request that waits and of all others with its key, in the order of
// their arrival, up to the rows of a batch. The first request chooses the key, so no request can
// starve. A session that records magnitudes has batches of its own, by its key.
bool ExpertEngine::StartBatch(Lane& lane, std::size_t work_class) {
  if (lane.batch->running() || lane.pending.empty()) return false;
  const PendingRequest first = lane.pending.front();
  const ExpertAttachment::Credit& like = first.attachment->credit(first.credit);
  const BatchKey key = first.attachment->KeyOf(like);
  lane.batch->Reserve(lane.pending.capacity());
  // Shares ownership with the epoch's memory, of which it is a part.
  lane.batch->Begin(key, like.epoch.runtime,
                    std::shared_ptr<const BatchMemory>(like.epoch.memory,
                                                       &like.epoch.memory->by_class[work_class]));
  lane.running.clear();
  std::size_t kept = 0;
  for (const PendingRequest& at : lane.pending) {
    const ExpertAttachment::Credit& credit = at.attachment->credit(at.credit);
    // The first request always fits, however many rows it has; otherwise it would wait for ever.
    const bool fits =
        lane.running.empty() || lane.batch->rows() + credit.header.rows <= options_.batch.rows_max;
    if (!fits || at.attachment->KeyOf(credit) != key) {
      lane.pending[kept++] = at;
      continue;
    }
    lane.batch->Add(at.attachment->InputOf(credit));
    lane.running.push_back(at);
    at.attachment->BeginRun();
  }
  // Compacted in place, which keeps the order of what waits and allocates nothing.
  lane.pending.resize(kept);
  ++stats_.batches;
  const absl::Status started = lane.batch->Start();
  if (started.ok()) return true;
  // Nothing was enqueued, so nothing will complete: every source gets the error now and not its
  // timeout.
  for (const PendingRequest& at : lane.running) Answer(at, started, 0);
  lane.running.clear();
  return true;
}

bool ExpertEngine::FinishBatch(Lane& lane) {
  if (!lane.batch->running() || !lane.batch->done()) return false;
  const absl::Status status = lane.batch->Finish();
  for (std::size_t i = 0; i < lane.running.size(); ++i) {
    Answer(lane.running[i], status, lane.batch->inputs()[i].nan_rows);
  }
  lane.running.clear();
  // An epoch counts as bound while a batch runs on it.
  ReportUnbound();
  return true;
}

void ExpertEngine::Answer(const PendingRequest& at, const absl::Status& status,
                          std::uint32_t nan_rows) {
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
  absl::Status sent;
  if (status.ok()) {
    ++stats_.requests;
    stats_.rows += credit.header.rows;
    stats_.nan_rows += nan_rows;
    sent = attachment->SendResult(credit, nan_rows);
  } else {
    ++stats_.refused;
    credit.intake.refusal = status;
    sent = attachment->SendRefusal(credit);
  }
  if (!sent.ok()) SendFailed(attachment, sent);
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

bool ExpertEngine::KeepTimers(TimePoint now) {
  bool closed = false;
  for (const auto& record : epochs_) {
    if (!record->retiring || !record->unbound || now < record->close_at) continue;
    CloseBound(*record);
    closed = true;
  }
  return closed;
}

void ExpertEngine::CloseBound(const EpochRecord& record) {
  std::vector<AttachmentId> bound;
  for (const auto& [number, attachment] : attachments_) {
    if (attachment->Binds(&record.epoch)) bound.push_back(number);
  }
  std::sort(bound.begin(), bound.end());  // A map of hashes has another order in each process.
  const EpochRuntime& runtime = *record.epoch.runtime;
  for (const AttachmentId number : bound) {
    Close(number);
    if (!options_.on_closed) continue;
    options_.on_closed(
        number, MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                          absl::StrFormat("worker %s: epoch %d of %s was retired while it was "
                                          "still bound; attach under the current plan",
                                          options_.identity.worker_id, runtime.epoch().value,
                                          runtime.deployment()),
                          {{"worker", options_.identity.worker_id},
                           {"epoch", absl::StrCat(runtime.epoch().value)}}));
  }
  ReportUnbound();
}

void ExpertEngine::ReportUnbound() {
  for (const auto& record : epochs_) {
    if (!record->retiring || !record->unbound || IsBound(*record)) continue;
    // Cleared before the call, so that it comes at most once.
    std::exchange(record->unbound, nullptr)();
  }
}

bool ExpertEngine::IsBound(const EpochRecord& record) const {
  const auto runs = [&record](const Lane& lane) {
    return lane.batch->runtime() == record.epoch.runtime.get();
  };
  // Running batches count too: the device reads weights of the epoch although no attachment binds
  // it.
  return std::any_of(lanes_.begin(), lanes_.end(), runs) ||
         std::any_of(attachments_.begin(), attachments_.end(),
                     [&record](const auto& entry) { return entry.second->Binds(&record.epoch); });
}

}  // namespace switchyard
