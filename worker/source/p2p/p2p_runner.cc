#include "worker/source/p2p/p2p_runner.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/source/p2p/slot_bytes.h"

namespace switchyard {
namespace {

std::uint32_t ChunkRows(const P2pRunnerOptions& options) {
  return ChunkRowsOf(options.grant, {.rows_max = options.chunk_rows_max,
                                     .credits = options.credits,
                                     .ring_bytes_max = options.ring_bytes_max});
}

StepEngineOptions EngineOptions(const P2pRunnerOptions& options) {
  StepEngineOptions out;
  out.stream = options.stream.get();
  out.tensor_encodes = options.tensor_encodes.get();
  out.tensor_sums = options.tensor_sums.get();
  if (options.tensors != nullptr) out.tensor_bytes_min = options.tensors->source_bytes_min();
  out.transport = options.transport;
  out.clock = options.clock;
  out.own_experts = options.own_experts;
  out.incarnation = options.incarnation;
  out.session = options.grant.session;
  out.cookie = options.grant.cookie;
  out.request = options.grant.request;
  out.chunk_rows = ChunkRows(options);
  out.tracer = options.tracer;
  out.piece_bytes = options.piece_bytes;
  return out;
}

// Adds to a step's error why the epoch that would mend it is not there yet: the worker that is lost
// is seldom the one that holds up the next epoch.
absl::Status WithComing(const absl::Status& lost, const absl::Status& coming) {
  if (coming.ok() || coming.message() == lost.message()) return lost;
  const std::map<std::string, std::string> metadata = MetadataOf(lost);
  return MakeError(lost.code(), ReasonOf(lost),
                   absl::StrCat(lost.message(), "; the next epoch waits: ", coming.message(), " (",
                                ReasonName(ReasonOf(coming)), ")"),
                   {metadata.begin(), metadata.end()});
}

}  // namespace

P2pRunner::P2pRunner(P2pRunnerOptions options)
    : options_(std::move(options)),
      events_(std::make_shared<AttachEventQueue>(options_.wake)),
      engine_(EngineOptions(options_)),
      binder_({.channel = options_.channel,
               .transport = options_.transport,
               .device = options_.device,
               .tensors = options_.tensors,
               .rng = options_.rng,
               .events = events_,
               .runner = this,
               .incarnation = options_.incarnation,
               .own_experts = options_.own_experts,
               .own_worker_id = options_.own_worker_id,
               .grant = options_.grant,
               .transport_choice = options_.transport_choice,
               .credits = options_.credits,
               .chunk_rows = ChunkRows(options_),
               .on_down = [this](Attachment& attachment, const absl::Status& why) {
                 engine_.FailOn(attachment, why, options_.clock->Now());
               }}) {}

// Before the members go: the device may still use what steps and rings hold.
P2pRunner::~P2pRunner() {
  Close({});
  events_->Close();
}

absl::Status P2pRunner::Start(TimePoint now) { return binder_.Start(now); }

void P2pRunner::OnPlan(const PlanUpdate& update, TimePoint now) { binder_.OnPlan(update, now); }

absl::Status P2pRunner::ready() const {
  if (binder_.current() != nullptr) return absl::OkStatus();
  if (!binder_.fatal().ok()) return binder_.fatal();
  const absl::Status& last = binder_.last_error();
  return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                   absl::StrCat("the session is not attached to all its workers yet",
                                last.ok() ? "" : "; last: ", last.message()),
                   {{"session", ToHex(options_.grant.session)}});
}

RunnerProgress P2pRunner::Poll(TimePoint now) {
  RunnerProgress progress;
  if (!closed_) {
    // Events first: they may bring the answer that a deadline would otherwise pass over. Steps end
    // before credits are counted as stuck, and before new chunks take what they give back.
    progress.worked = HandleEvents(now);
    progress.worked |= engine_.Expire(now);
    progress.worked |= LoseStuckAttachments(now);
    progress.worked |= engine_.Pump(now);
    progress.worked |= binder_.Poll(now);
    // A caller sleeps only when nothing worked, so that a busy poll need not look for deadlines.
    if (!progress.worked) progress.wake_at = WakeAt();
  }
  // A link that is not connected yet counts: its peer may be the first to send.
  progress.has_links = !binder_.attachments().empty();
  progress.why = ready();
  if (progress.why.ok()) {
    progress.state = RunnerProgress::State::kReady;
  } else if (!absl::IsUnavailable(progress.why)) {
    // kUnavailable is the only code that a retry may mend (EpochBinder::fatal).
    progress.state = RunnerProgress::State::kFailed;
  }
  return progress;
}

bool P2pRunner::HandleEvents(TimePoint now) {
  events_->Take(&taken_);
  for (AttachEvent& event : taken_) {
    if (auto* made = std::get_if<MemoryMadeEvent>(&event)) {
      binder_.OnMemoryMade(std::move(*made), now);
    } else if (const auto* attached = std::get_if<AttachedEvent>(&event)) {
      binder_.OnAttached(*attached, now);
    } else if (const auto* met = std::get_if<PeerMetEvent>(&event)) {
      binder_.OnPeerMet(*met, now);
    } else if (const auto* bound = std::get_if<BoundEvent>(&event)) {
      binder_.OnBound(*bound, now);
    } else if (const auto* ended = std::get_if<AttachEndedEvent>(&event)) {
      binder_.OnAttachEnded(*ended, now);
    }
  }
  return !taken_.empty();
}

TimePoint P2pRunner::SilentAt(const Attachment& attachment) const {
  const std::optional<TimePoint> since = attachment.credits.OwedSince();
  return since ? *since + options_.given_up_max : TimePoint::max();
}

// A worker that keeps a credit of a step that was given up may be stopped for good. Only closing
// the attachment gives its rings back, since the worker could still write into the reply slot.
bool P2pRunner::LoseStuckAttachments(TimePoint now) {
  // Between steps that are given up the time only moves on, and a look at every credit of every
  // worker for each frame would cost a step the square of its workers.
  if (engine_.given_up() == seen_given_up_ && now < stuck_at_) return false;
  seen_given_up_ = engine_.given_up();
  stuck_at_ = TimePoint::max();
  bool lost = false;
  for (const std::unique_ptr<Attachment>& attachment : binder_.attachments()) {
    const TimePoint silent_at = SilentAt(*attachment);
    if (silent_at > now) {
      stuck_at_ = std::min(stuck_at_, silent_at);
      continue;
    }
    binder_.Lose(
        *attachment,
        MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                  absl::StrFormat("worker %s owes the reply to a step that was given up, and has "
                                  "answered nothing that was sent before it for %d ms",
                                  attachment->worker.id,
                                  options_.given_up_max / std::chrono::milliseconds(1)),
                  {{"worker", attachment->worker.id}}),
        now);
    lost = true;
  }
  return lost;
}

absl::Status P2pRunner::CheckOpen() const {
  if (!closed_) return ready();
  return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                   "the session is closed; open another", {});
}

absl::StatusOr<StepLimits> P2pRunner::LimitsOf(LayerId layer) const {
  SY_RETURN_IF_ERROR(CheckOpen());
  return engine_.LimitsOf(*binder_.current(), layer);
}

absl::StatusOr<StepTicket> P2pRunner::Submit(const StepRequest& request, TimePoint now) {
  SY_RETURN_IF_ERROR(CheckOpen());
  // Answers that have come meanwhile may complete a newer epoch: a step starts on the newest one
  // that is bound, so that the older one ends as soon as it can.
  HandleEvents(now);
  binder_.Poll(now);
  // The time of a former model may be over.
  SY_RETURN_IF_ERROR(CheckOpen());
  // Other codes are the caller's own mistakes, which no epoch mends.
  absl::StatusOr<StepTicket> ticket = engine_.Submit(request, binder_.current(), now);
  if (ticket.ok()) binder_.OnStepDeadline(request.deadline);
  if (!absl::IsUnavailable(ticket.status())) return ticket;
  return WithComing(ticket.status(), binder_.coming_error());
}

void P2pRunner::OnFrame(Attachment& attachment, const HeaderBytes& raw, const FrameHeader& header,
                        std::span<const std::byte> payload) {
  engine_.OnFrame(attachment, raw, header, payload, options_.clock->Now());
}

void P2pRunner::OnLinkDown(Attachment& attachment, const absl::Status& why) {
  // Not only the link: the worker's end of the stream may live on, and a retry needs both new.
  binder_.Lose(attachment, why, options_.clock->Now());
}

void P2pRunner::Close(TimePoint now) {
  // Source::Close, the destructor of a Source and that of the runner may all come here.
  if (closed_) return;
  closed_ = true;
  // Steps end before the rings go: a sum reads its rows where they lie in the ring.
  engine_.FailAll(MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                            "the session was closed with this step in flight", {}),
                  now);
  binder_.CloseAll();
}

TimePoint P2pRunner::WakeAt() const {
  return std::min({engine_.NextDeadline(), binder_.NextDeadline(), stuck_at_});
}

Epoch P2pRunner::epoch() const {
  const BoundPlan* bound = binder_.current();
  return bound == nullptr ? Epoch{} : bound->plan.epoch;
}

RunnerStatus P2pRunner::Status() const {
  RunnerStatus status;
  status.grant = options_.grant;
  // While the session opens the granted plan stands in, of which a coordinator knows the session.
  if (const BoundPlan* bound = binder_.current()) {
    status.grant.plan = bound->plan;
    status.grant.hash = bound->hash;
    status.epoch = bound->plan.epoch;
  }
  status.steps_in_flight = engine_.in_flight();
  status.times = engine_.times();
  for (const std::unique_ptr<Attachment>& attachment : binder_.attachments()) {
    AttachmentStatus row;
    row.worker_id = attachment->worker.id;
    row.ready = attachment->state == Attachment::State::kReady;
    if (attachment->own) {
      row.request_path = "direct";
      row.reply_path = "direct";
    } else if (attachment->link != nullptr) {
      row.request_path = std::string(LinkPathName(attachment->link->path()));
      row.reply_path = attachment->reply_path;
      // The worker goes first, so its reason says what failed; this side's often only that.
      row.why_messages = attachment->why_reply_messages;
      if (row.why_messages.empty()) row.why_messages = attachment->link->why_messages();
      row.why_no_device = attachment->why_no_device;
      if (attachment->device_rings != nullptr) row.request_path = row.reply_path = "device";
    }
    row.credits = attachment->credits.size();
    row.credits_free = attachment->credits.free();
    // Own experts have no ring.
    if (!attachment->own) row.slot_bytes = attachment->slot_bytes;
    row.frames_sent = attachment->frames_sent;
    row.replies_late = attachment->replies_late;
    row.replies_unexpected = attachment->replies_unexpected;
    row.last_error = std::string(attachment->down_why.message());
    status.attachments.push_back(std::move(row));
  }
  return status;
}

}  // namespace switchyard
