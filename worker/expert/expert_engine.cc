#include "worker/expert/expert_engine.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Room for a header and an error with the longest text.
const auto kSlotBytesMin = static_cast<std::uint32_t>(LayoutOfError(kErrorTextMax).frame_bytes);

absl::Status BadRing(Reason reason, const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, reason, absl::StrCat("reply ring: ", what));
}

absl::Status CheckSlotBytes(absl::string_view of, std::uint32_t bytes, std::uint32_t most) {
  if (bytes >= kSlotBytesMin && bytes <= most) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kMessageTooLarge,
                   absl::StrFormat("%s ring: slots of %d bytes, %d to %d are allowed", of, bytes,
                                   kSlotBytesMin, most));
}

}  // namespace

ExpertEngine::ExpertEngine(ExpertEngineOptions options, Transport* transport)
    : options_(std::move(options)), transport_(transport) {}

ExpertEngine::~ExpertEngine() = default;

void ExpertEngine::Activate(StagedEpoch staged) {
  auto record = std::make_unique<EpochRecord>();
  record->epoch = {.runtime = std::move(staged.runtime), .executor = std::move(staged.executor)};
  epochs_.push_back(std::move(record));
}

void ExpertEngine::Retire(absl::string_view deployment, Epoch epoch, TimePoint now,
                          std::function<void()> unbound) {
  EpochRecord* record = Find(deployment, epoch);
  if (record == nullptr) {
    unbound();
    return;
  }
  record->retiring = true;
  record->close_at = now + options_.retire_grace;
  record->unbound = std::move(unbound);
  ReportUnbound();
}

StagedEpoch ExpertEngine::Drop(absl::string_view deployment, Epoch epoch) {
  EpochRecord* record = Find(deployment, epoch);
  if (record == nullptr) return {};
  CloseBound(*record);
  StagedEpoch dropped{.runtime = std::move(record->epoch.runtime),
                      .executor = std::move(record->epoch.executor)};
  std::erase_if(epochs_, [record](const auto& held) { return held.get() == record; });
  return dropped;
}

absl::StatusOr<AttachGrant> ExpertEngine::Attach(const AttachRequest& order) {
  SY_RETURN_IF_ERROR(CheckOrder(order));
  SY_ASSIGN_OR_RETURN(EpochRecord * record, FindServing(order.deployment, order.epoch, order.hash));
  auto attachment = std::make_unique<ExpertAttachment>(order, &record->epoch, options_.identity);
  SY_ASSIGN_OR_RETURN(AttachGrant grant, attachment->Open(transport_));
  pairs_ += attachment->pairs();
  pending_.reserve(pairs_);
  running_.reserve(pairs_);
  batch_.reserve(pairs_);
  broken_.reserve(attachments_.size() + 1);
  attachments_[attachment->number()] = std::move(attachment);
  return grant;
}

absl::Status ExpertEngine::CheckOrder(const AttachRequest& order) const {
  const RingOffer& ring = order.reply_ring;
  if (ring.incarnation.empty()) return BadRing(Reason::kBadRequest, "incarnation is missing");
  if (ring.slots == 0 || ring.slots > options_.slots_max) {
    return BadRing(Reason::kBadRequest, absl::StrFormat("%d slots, 1 to %d are allowed", ring.slots,
                                                        options_.slots_max));
  }
  const std::uint32_t request_slot_bytes = order.request_slot_bytes_or_reply();
  SY_RETURN_IF_ERROR(CheckSlotBytes("reply", ring.slot_bytes, options_.slot_bytes_max));
  SY_RETURN_IF_ERROR(CheckSlotBytes("request", request_slot_bytes, options_.slot_bytes_max));
  const Replaced replaced = ReplacedBy(order);
  if (attachments_.size() - replaced.attachments >= options_.attachments_max) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                     absl::StrFormat("worker %s has %d attachments, its most; close a session",
                                     options_.identity.worker_id, attachments_.size()));
  }
  const std::uint64_t bytes = std::uint64_t{ring.slots} * request_slot_bytes;
  if (transport_->stats().ring_bytes - replaced.ring_bytes + bytes > options_.ring_bytes_max) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrFormat("worker %s may hold %d bytes of rings; ask for fewer or "
                                     "smaller slots",
                                     options_.identity.worker_id, options_.ring_bytes_max));
  }
  return absl::OkStatus();
}

// A session that attaches again for larger slots ends its other attachment after that one's last
// step: only what stays counts. A session with two already is not exempt, so that limits hold.
ExpertEngine::Replaced ExpertEngine::ReplacedBy(const AttachRequest& order) const {
  Replaced replaced;
  for (const auto& [number, attachment] : attachments_) {
    if (attachment->session() != order.session) continue;
    ++replaced.attachments;
    replaced.ring_bytes += attachment->ring_bytes();
  }
  return replaced.attachments == 1 ? replaced : Replaced{};
}

absl::Status ExpertEngine::Bind(AttachmentId attachment, const BindRequest& order) {
  SY_ASSIGN_OR_RETURN(ExpertAttachment * to, FindAttachment(attachment));
  SY_ASSIGN_OR_RETURN(EpochRecord * record, FindServing(to->deployment(), order.epoch, order.hash));
  return to->Bind(&record->epoch);
}

absl::Status ExpertEngine::Release(AttachmentId attachment, const ReleaseRequest& order) {
  SY_ASSIGN_OR_RETURN(ExpertAttachment * of, FindAttachment(attachment));
  const EpochRecord* record = Find(of->deployment(), order.epoch);
  if (record == nullptr) return absl::OkStatus();
  of->Release(&record->epoch);
  ReportUnbound();
  return absl::OkStatus();
}

void ExpertEngine::Close(AttachmentId attachment) {
  const auto at = attachments_.find(attachment);
  if (at == attachments_.end()) return;
  pairs_ -= at->second->pairs();
  for (const auto& [number, other] : attachments_) {
    if (other == at->second || other->session() != at->second->session()) continue;
    other->Absorb(*at->second);
    break;
  }
  attachments_.erase(at);
  ReportUnbound();
}

bool ExpertEngine::Poll(TimePoint now) {
  bool worked = transport_->Progress(*this);
  while (!pending_.empty() || !broken_.empty()) {
    worked = true;
    CloseBroken();
    SendRefusals();
    RunPending();
  }
  return KeepTimers(now) || worked;
}

std::optional<TimePoint> ExpertEngine::NextDeadline() const {
  std::optional<TimePoint> next;
  for (const auto& record : epochs_) {
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
    case ExpertAttachment::Arrival::kTaken:
      pending_.push_back({.attachment = attachment, .pair = header.request_slot});
      return;
    case ExpertAttachment::Arrival::kDropped:
      transport_->CountDrop(drop);
      return;
    case ExpertAttachment::Arrival::kDuplicate:
      ++stats_.duplicates;
      return;
  }
}

void ExpertEngine::OnLinkDown(Link& link, const absl::Status& why) {
  SendFailed(static_cast<ExpertAttachment*>(link.owner()), why);
}

absl::StatusOr<ExpertEngine::EpochRecord*> ExpertEngine::FindServing(absl::string_view deployment,
                                                                     Epoch epoch,
                                                                     const PlanHash& hash) {
  EpochRecord* record = Find(deployment, epoch);
  if (record != nullptr && !record->retiring && record->epoch.runtime->hash == hash) return record;
  const char* why = "is not committed here";
  if (record != nullptr) why = "was committed here with another plan hash";
  if (record != nullptr && record->retiring) why = "is being retired";
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch,
                   absl::StrFormat("worker %s: epoch %d of %s %s; take the current plan",
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

void ExpertEngine::SendRefusals() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < pending_.size(); ++i) {
    const PendingPair at = pending_[i];
    ExpertAttachment::Pair& pair = at.attachment->pair(at.pair);
    if (pair.intake.refusal.ok()) {
      pending_[kept++] = at;
      continue;
    }
    ++stats_.refused;
    if (absl::Status sent = at.attachment->SendRefusal(pair); !sent.ok()) {
      SendFailed(at.attachment, sent);
    }
  }
  pending_.resize(kept);
}

// One batch for each (epoch, layer, mode), in the order in which their first requests came; a
// session that records magnitudes has batches of its own.
void ExpertEngine::RunPending() {
  while (!pending_.empty()) {
    const ExpertAttachment::Pair& first = pending_[0].attachment->pair(pending_[0].pair);
    RunBatch(first, pending_[0].attachment->AmaxOf(*first.intake.layer));
  }
}

void ExpertEngine::RunBatch(const ExpertAttachment::Pair& like, ExpertAmax* amax) {
  const LayerRuntime* layer = like.intake.layer;  // One object of one epoch: it is the key.
  const DispatchMode mode = like.header.mode;
  ChunkExecutor* executor = like.epoch->executor.get();
  running_.clear();
  batch_.clear();
  std::size_t kept = 0;
  for (const PendingPair& at : pending_) {
    const ExpertAttachment::Pair& pair = at.attachment->pair(at.pair);
    if (pair.intake.layer != layer || pair.header.mode != mode ||
        at.attachment->AmaxOf(*layer) != amax) {
      pending_[kept++] = at;
      continue;
    }
    running_.push_back(at);
    batch_.push_back({.request = &pair.intake.view,
                      .dtype = pair.header.format.dtype,
                      .dense_rows = pair.intake.rows,
                      .scales = pair.intake.scales,
                      .row_of = {},
                      .out = at.attachment->ReplyRows(pair)});
  }
  pending_.resize(kept);
  executor->Execute(*layer, batch_, amax);
  ++stats_.batches;
  for (std::size_t i = 0; i < running_.size(); ++i) {
    const PendingPair& at = running_[i];
    ExpertAttachment::Pair& pair = at.attachment->pair(at.pair);
    ++stats_.requests;
    stats_.rows += pair.header.rows;
    stats_.nan_rows += batch_[i].nan_rows;
    if (absl::Status sent = at.attachment->SendResult(pair, batch_[i].nan_rows); !sent.ok()) {
      SendFailed(at.attachment, sent);
    }
  }
}

void ExpertEngine::SendFailed(ExpertAttachment* attachment, const absl::Status& why) {
  const bool known = std::any_of(broken_.begin(), broken_.end(), [attachment](const auto& broken) {
    return broken.first == attachment;
  });
  if (!known) broken_.emplace_back(attachment, why);
}

void ExpertEngine::CloseBroken() {
  for (const auto& [attachment, why] : broken_) {
    std::erase_if(pending_,
                  [gone = attachment](const PendingPair& at) { return at.attachment == gone; });
    const AttachmentId number = attachment->number();
    Close(number);
    if (options_.on_closed) options_.on_closed(number, why);
  }
  broken_.clear();
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
    std::exchange(record->unbound, nullptr)();
  }
}

bool ExpertEngine::IsBound(const EpochRecord& record) const {
  return std::any_of(attachments_.begin(), attachments_.end(),
                     [&record](const auto& entry) { return entry.second->Binds(&record.epoch); });
}

}  // namespace switchyard
