#include "worker/source/p2p/session.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// min(chunk_rows_max, largest batch); a low_latency batch has a row for each of a token's experts,
// and a chunk never splits a token.
std::uint32_t ChunkRows(const SourceSessionOptions& options) {
  const OpenSessionRequest& order = options.grant.order;
  const auto top_k = static_cast<std::uint32_t>(options.grant.plan.shape.top_k);
  std::uint32_t rows = options.chunk_rows_max;
  if (order.max_tokens > 0) {
    const auto tokens = static_cast<std::uint32_t>(order.max_tokens);
    rows = std::min(rows, order.mode == DispatchMode::kLowLatency ? tokens * top_k : tokens);
  }
  return std::max(rows, top_k);
}

StepEngineOptions EngineOptions(const SourceSessionOptions& options) {
  StepEngineOptions out;
  out.device = options.device;
  out.transport = options.transport;
  out.clock = options.clock;
  out.own_experts = options.own_experts;
  out.incarnation = options.incarnation;
  out.session = options.grant.session;
  out.cookie = options.grant.cookie;
  out.order = options.grant.order;
  out.chunk_rows = ChunkRows(options);
  out.mutant = options.mutant;
  return out;
}

// A step that finds a worker gone from its epoch, and why the epoch that would mend it is not
// there.
absl::Status WithComing(const absl::Status& lost, const absl::Status& coming) {
  if (coming.ok() || coming.message() == lost.message()) return lost;
  const std::map<std::string, std::string> metadata = MetadataOf(lost);
  return MakeError(lost.code(), ReasonOf(lost),
                   absl::StrCat(lost.message(), "; the next epoch waits: ", coming.message(), " (",
                                ReasonName(ReasonOf(coming)), ")"),
                   {metadata.begin(), metadata.end()});
}

}  // namespace

class SourceSession::WatchEvents final : public WatchSink {
 public:
  explicit WatchEvents(SessionEvents* events) : events_(events) {}
  void OnPlan(const PlanUpdate& news) override { events_->Push(PlanEvent{news}); }
  void OnWatchEnded(const absl::Status& why) override { events_->Push(WatchEndedEvent{why}); }

 private:
  SessionEvents* events_;
};

SourceSession::SourceSession(SourceSessionOptions options)
    : options_(std::move(options)),
      events_(options_.wake),
      engine_(EngineOptions(options_)),
      binder_({.channel = options_.channel,
               .transport = options_.transport,
               .device = options_.device,
               .rng = options_.rng,
               .events = &events_,
               .session = this,
               .incarnation = options_.incarnation,
               .own_experts = options_.own_experts,
               .own_worker_id = options_.own_worker_id,
               .grant = options_.grant,
               .mutant = options_.mutant,
               .transport_choice = options_.transport_choice,
               .pairs = options_.pairs,
               .chunk_rows = ChunkRows(options_),
               .on_down =
                   [this](Attachment& attachment, const absl::Status& why) {
                     engine_.FailOn(attachment, why, options_.clock->Now());
                   }}),
      watch_sink_(std::make_unique<WatchEvents>(&events_)) {}

SourceSession::~SourceSession() { watch_.reset(); }

absl::Status SourceSession::Start(TimePoint now) {
  StartWatch();
  return binder_.Start(now);
}

void SourceSession::StartWatch() {
  const BoundPlan* binding = binder_.current();
  WatchRequest order;
  order.session = options_.grant.session;
  order.deployment = options_.grant.plan.deployment;
  order.phase = options_.grant.order.phase;
  order.epoch = binding != nullptr ? binding->plan.epoch : options_.grant.plan.epoch;
  order.hash = binding != nullptr ? binding->hash : options_.grant.hash;
  watch_retry_at_.reset();
  watch_.reset();
  watch_ = options_.channel->Watch(order, watch_sink_.get());
}

absl::Status SourceSession::ready() const {
  if (binder_.current() != nullptr) return absl::OkStatus();
  if (!binder_.fatal().ok()) return binder_.fatal();
  const absl::Status& last = binder_.last_error();
  return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                   absl::StrCat("the session is not attached to all its workers yet",
                                last.ok() ? "" : "; last: ", last.message()),
                   {{"session", ToHex(options_.grant.session)}});
}

bool SourceSession::Poll(TimePoint now) {
  if (closed_) return false;
  bool worked = HandleEvents(now);
  worked |= engine_.Expire(now);
  worked |= LoseStuckAttachments(now);
  worked |= engine_.Pump(now);
  worked |= binder_.Poll(now);
  if (watch_retry_at_.has_value() && *watch_retry_at_ <= now) StartWatch();
  return worked;
}

bool SourceSession::HandleEvents(TimePoint now) {
  events_.Take(&taken_);
  for (SessionEvent& event : taken_) {
    if (const auto* attached = std::get_if<AttachedEvent>(&event)) {
      binder_.OnAttached(*attached, now);
    } else if (const auto* bound = std::get_if<BoundEvent>(&event)) {
      binder_.OnBound(*bound, now);
    } else if (const auto* ended = std::get_if<AttachEndedEvent>(&event)) {
      binder_.OnAttachEnded(*ended, now);
    } else if (const auto* plan = std::get_if<PlanEvent>(&event)) {
      watch_backoff_ = {};
      watch_refused_ = absl::OkStatus();
      binder_.OnPlan(plan->news, now);
    } else if (const auto* watch = std::get_if<WatchEndedEvent>(&event)) {
      const bool refused = watch->why.code() == absl::StatusCode::kFailedPrecondition ||
                           watch->why.code() == absl::StatusCode::kNotFound;
      if (refused) watch_refused_ = watch->why;
      watch_backoff_ =
          std::clamp(watch_backoff_ * 2, options_.watch_backoff_min, options_.watch_backoff_max);
      watch_retry_at_ = now + watch_backoff_;
    }
  }
  return !taken_.empty();
}

// A worker that sits on a credit of a step that was given up may be stopped for good: its rings go.
bool SourceSession::LoseStuckAttachments(TimePoint now) {
  bool lost = false;
  for (const std::unique_ptr<Attachment>& attachment : binder_.attachments()) {
    const std::optional<TimePoint> oldest = attachment->pairs.OldestGivenUp();
    if (!oldest.has_value() || *oldest + options_.given_up_max > now) continue;
    binder_.Lose(
        *attachment,
        MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                  absl::StrFormat("worker %s did not answer a step that was given up %d ms "
                                  "ago",
                                  attachment->worker.id,
                                  options_.given_up_max / std::chrono::milliseconds(1)),
                  {{"worker", attachment->worker.id}}),
        now);
    lost = true;
  }
  return lost;
}

absl::StatusOr<StepTicket> SourceSession::Submit(const StepRequest& request, TimePoint now) {
  if (closed_) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                     "the session is closed; open another", {});
  }
  SY_RETURN_IF_ERROR(ready());
  // What has come meanwhile may hold a newer epoch: a step starts on the newest one that is bound.
  HandleEvents(now);
  binder_.Poll(now);
  absl::StatusOr<StepTicket> ticket = engine_.Submit(request, binder_.current(), now);
  // The plan that would mend it will never be heard of.
  if (!absl::IsUnavailable(ticket.status())) return ticket;
  if (!watch_refused_.ok()) return watch_refused_;
  return WithComing(ticket.status(), binder_.coming_error());
}

void SourceSession::OnFrame(Attachment& attachment, const HeaderBytes& raw,
                            const FrameHeader& header, std::span<const std::byte> payload,
                            TimePoint now) {
  engine_.OnFrame(attachment, raw, header, payload, now);
}

void SourceSession::OnLinkDown(Attachment& attachment, const absl::Status& why, TimePoint now) {
  binder_.Lose(attachment, why, now);
}

void SourceSession::Close(TimePoint now) {
  if (closed_) return;
  closed_ = true;
  engine_.FailAll(MakeError(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed,
                            "the session was closed with this step in flight", {}),
                  now);
  watch_.reset();
  binder_.CloseAll();
}

std::optional<TimePoint> SourceSession::NextDeadline() const {
  std::optional<TimePoint> first = engine_.NextDeadline();
  const auto sooner = [&first](std::optional<TimePoint> other) {
    if (other.has_value()) first = first.has_value() ? std::min(*first, *other) : other;
  };
  sooner(binder_.NextDeadline());
  sooner(watch_retry_at_);
  for (const std::unique_ptr<Attachment>& attachment : binder_.attachments()) {
    if (const auto oldest = attachment->pairs.OldestGivenUp()) {
      sooner(*oldest + options_.given_up_max);
    }
  }
  return first;
}

SourceSessionStatus SourceSession::Status() const {
  SourceSessionStatus status;
  status.session = options_.grant.session;
  if (const BoundPlan* binding = binder_.current()) {
    status.epoch = binding->plan.epoch;
    status.hash = binding->hash;
  }
  status.watching = !watch_retry_at_.has_value();
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
    }
    row.pairs = attachment->pairs.size();
    row.pairs_free = attachment->pairs.free();
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
