#include "worker/source/p2p/epoch_binder.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/source/p2p/slot_bytes.h"

namespace switchyard {
namespace {

// An answer that another attempt at the same plan cannot change.
bool IsFinal(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kResourceExhausted:
      return false;
    default:
      return ReasonOf(status) != Reason::kStaleEpoch;
  }
}

bool SameLife(const PlanWorker& a, const PlanWorker& b) {
  return a.id == b.id && a.incarnation == b.incarnation;
}

// Slots beyond 32 bits are refused by the transport, with their size.
std::uint32_t Bytes32(std::int64_t bytes) {
  return static_cast<std::uint32_t>(
      std::min<std::int64_t>(bytes, std::numeric_limits<std::uint32_t>::max()));
}

std::optional<std::size_t> OrdinalOf(const BoundPlan& binding, const Attachment& attachment) {
  for (std::size_t w = 0; w < binding.workers.size(); ++w) {
    if (binding.workers[w] == &attachment) return w;
  }
  return std::nullopt;
}

}  // namespace

EpochBinder::EpochBinder(BinderOptions options) : options_(std::move(options)) {}

EpochBinder::~EpochBinder() { CloseAll(); }

absl::Status EpochBinder::Start(TimePoint now) {
  SY_ASSIGN_OR_RETURN(std::unique_ptr<BoundPlan> first,
                      MakeBoundPlan({options_.grant.plan, options_.grant.hash},
                                    options_.grant.order, *options_.device));
  Adopt(std::move(first), now);
  return absl::OkStatus();
}

void EpochBinder::OnPlan(const PlanUpdate& news, TimePoint now) {
  const BoundPlan* newest = next_ != nullptr ? next_.get() : current_.get();
  if (newest != nullptr && !(newest->plan.epoch < news.plan.epoch)) return;
  absl::StatusOr<std::unique_ptr<BoundPlan>> next =
      MakeBoundPlan(news, options_.grant.order, *options_.device);
  if (!next.ok()) {
    last_error_ = next.status();  // What serves, serves.
    return;
  }
  Adopt(*std::move(next), now);
}

void EpochBinder::Adopt(std::unique_ptr<BoundPlan> next, TimePoint now) {
  DropNext();
  next_ = std::move(next);
  for (std::size_t w = 0; w < next_->workers.size(); ++w) {
    next_->workers[w] = FindOrAdd(*next_, w);
  }
  CloseUnused();  // Those that only an overtaken plan needed.
  for (std::size_t w = 0; w < next_->workers.size(); ++w) {
    Attachment& attachment = *next_->workers[w];
    if (attachment.own) {
      attachment.state = Attachment::State::kReady;
      next_->bound[w] = true;
    } else if (attachment.state == Attachment::State::kReady) {
      attachment.stream->Bind({next_->plan.epoch, next_->hash});
    } else if (attachment.state == Attachment::State::kDown) {
      StartAttach(attachment, now);
    }
  }
}

// A plan that a newer one overtook: whoever bound it must not hold its epoch for us.
void EpochBinder::DropNext() {
  if (next_ == nullptr) return;
  for (Attachment* attachment : next_->workers) {
    ReleaseAt(*attachment, next_->plan.epoch);
  }
  next_.reset();
}

void EpochBinder::ReleaseAt(Attachment& attachment, Epoch epoch) const {
  if (attachment.own) {
    options_.own_experts->Release(options_.grant.session, epoch);
  } else if (attachment.state == Attachment::State::kReady) {
    attachment.stream->Release({epoch});
  }
}

Attachment* EpochBinder::FindOrAdd(const BoundPlan& binding, std::size_t ordinal) {
  const PlanWorker& worker = binding.plan.workers[ordinal];
  StagingBytes need =
      SlotBytesOf(binding, WorkerOrdinal{static_cast<std::int32_t>(ordinal)}, options_.chunk_rows);
  // The newest first: it has the largest slots, and an older one goes with the last of its steps.
  for (auto it = attachments_.rbegin(); it != attachments_.rend(); ++it) {
    const Attachment& attachment = **it;
    if (!SameLife(attachment.worker, worker)) continue;
    if (attachment.own || Holds(attachment.slot_bytes, need)) return it->get();
    need = LargerOf(need, attachment.slot_bytes);
  }
  auto attachment = std::make_unique<Attachment>();
  attachment->slot_bytes = need;
  attachment->session = options_.session;
  attachment->worker = worker;
  attachment->own = !options_.own_worker_id.empty() && worker.id == options_.own_worker_id;
  attachments_.push_back(std::move(attachment));
  return attachments_.back().get();
}

Attachment* EpochBinder::FindBySerial(std::uint64_t serial) const {
  for (const std::unique_ptr<Attachment>& attachment : attachments_) {
    if (attachment->serial == serial && attachment->stream != nullptr) return attachment.get();
  }
  return nullptr;
}

void EpochBinder::StartAttach(Attachment& attachment, TimePoint now) {
  // For the epoch in use, so that its steps can go on; where the worker has retired that one, for
  // the coming one, which waits for this very attachment.
  const bool retired = ReasonOf(attachment.down_why) == Reason::kStaleEpoch;
  const bool coming =
      Uses(next_.get(), attachment) && (retired || !Uses(current_.get(), attachment));
  const BoundPlan& binding = coming ? *next_ : *current_;
  absl::StatusOr<std::unique_ptr<Link>> link =
      options_.transport->CreateLink({.cookie = options_.grant.cookie,
                                      .slots = options_.pairs,
                                      .slot_bytes = Bytes32(attachment.slot_bytes.combine),
                                      .choice = options_.transport_choice,
                                      .owner = &attachment});
  if (!link.ok()) {
    Lose(attachment, link.status(), now);
    return;
  }
  attachment.serial = ++last_serial_;
  attachment.state = Attachment::State::kAttaching;
  attachment.link = *std::move(link);
  attachment.pairs = CreditTable(options_.pairs, options_.mutant);
  attachment.sink = std::make_unique<AttachEvents>(attachment.serial, options_.events);
  AttachRequest order;
  order.session = options_.grant.session;
  order.cookie = options_.grant.cookie;
  order.deployment = binding.plan.deployment;
  order.phase = options_.grant.order.phase;
  order.mode = options_.grant.order.mode.value_or(DispatchMode::kNormal);
  order.epoch = binding.plan.epoch;
  order.hash = binding.hash;
  order.transport = options_.transport_choice;
  order.reply_ring = attachment.link->offer();
  order.request_slot_bytes = Bytes32(attachment.slot_bytes.dispatch);
  order.record_amax = options_.grant.order.record_amax;
  attachment.attach_epoch = order.epoch;
  attachment.stream =
      options_.channel->Attach(attachment.worker.endpoint, order, attachment.sink.get());
}

absl::Status EpochBinder::ConnectLink(Attachment& attachment, const AttachGrant& grant) const {
  if (grant.request_ring.incarnation != attachment.worker.incarnation) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kIncarnation,
                     absl::StrFormat("worker %s answered as another incarnation than the plan's; "
                                     "it was restarted, wait for the next epoch",
                                     attachment.worker.id),
                     {{"worker", attachment.worker.id}});
  }
  if (grant.request_ring.slots < options_.pairs ||
      grant.request_ring.slot_bytes < attachment.slot_bytes.dispatch) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kTransport,
                     absl::StrFormat("worker %s offers %d slots of %d bytes, %d of %d are needed",
                                     attachment.worker.id, grant.request_ring.slots,
                                     grant.request_ring.slot_bytes, options_.pairs,
                                     attachment.slot_bytes.dispatch),
                     {{"worker", attachment.worker.id}});
  }
  return attachment.link->Connect(grant.request_ring);
}

void EpochBinder::OnAttached(const AttachedEvent& event, TimePoint now) {
  Attachment* attachment = FindBySerial(event.serial);
  if (attachment == nullptr || attachment->state != Attachment::State::kAttaching) return;
  if (const absl::Status connected = ConnectLink(*attachment, event.grant); !connected.ok()) {
    if (current_ == nullptr && IsFinal(connected)) fatal_ = connected;
    Lose(*attachment, connected, now);
    return;
  }
  attachment->state = Attachment::State::kReady;
  attachment->backoff = {};
  attachment->peer_attachment = event.grant.request_ring.attachment;
  attachment->reply_path = event.grant.path;
  if (current_ != nullptr && current_->plan.epoch < attachment->attach_epoch) {
    if (const auto ordinal = OrdinalOf(*current_, *attachment)) current_->bound[*ordinal] = false;
  }
  MarkBound(*attachment, attachment->attach_epoch);
  BindNewer(*attachment, attachment->attach_epoch);
  // A newer plan overtook the one that it was made for: the worker must not hold that for us.
  if (!Knows(attachment->attach_epoch)) attachment->stream->Release({attachment->attach_epoch});
}

bool EpochBinder::Knows(Epoch epoch) const {
  const auto is = [epoch](const BoundPlan* binding) {
    return binding != nullptr && binding->plan.epoch == epoch;
  };
  return is(current_.get()) || is(next_.get()) ||
         std::any_of(ending_.begin(), ending_.end(),
                     [&](const std::unique_ptr<BoundPlan>& binding) { return is(binding.get()); });
}

void EpochBinder::BindNewer(Attachment& attachment, Epoch attached) {
  if (next_ != nullptr && Uses(next_.get(), attachment) && attached < next_->plan.epoch) {
    attachment.stream->Bind({next_->plan.epoch, next_->hash});
  }
}

void EpochBinder::MarkBound(Attachment& attachment, Epoch epoch) {
  for (BoundPlan* binding : {current_.get(), next_.get()}) {
    if (binding == nullptr || binding->plan.epoch != epoch) continue;
    if (const auto ordinal = OrdinalOf(*binding, attachment)) binding->bound[*ordinal] = true;
  }
}

void EpochBinder::OnBound(const BoundEvent& event, TimePoint now) {
  Attachment* attachment = FindBySerial(event.serial);
  if (attachment == nullptr) return;
  if (!event.result.ok()) {
    Lose(*attachment, event.result, now);
    return;
  }
  MarkBound(*attachment, event.epoch);
}

void EpochBinder::OnAttachEnded(const AttachEndedEvent& event, TimePoint now) {
  Attachment* attachment = FindBySerial(event.serial);
  if (attachment == nullptr) return;
  const bool opening = current_ == nullptr;
  if (opening && attachment->state == Attachment::State::kAttaching && IsFinal(event.why)) {
    fatal_ = event.why;
  }
  Lose(*attachment, event.why, now);
}

void EpochBinder::Lose(Attachment& attachment, const absl::Status& why, TimePoint now) {
  attachment.state = Attachment::State::kDown;
  attachment.down_why = why;
  last_error_ = why;
  attachment.backoff =
      std::clamp(attachment.backoff * 2, options_.backoff_min, options_.backoff_max);
  const double jitter = 0.5 + options_.rng->Uniform();
  attachment.retry_at =
      now +
      Duration(static_cast<std::int64_t>(static_cast<double>(attachment.backoff.count()) * jitter));
  // A new life must confirm the coming epoch again; the current one it had confirmed already.
  if (next_ != nullptr) {
    if (const auto ordinal = OrdinalOf(*next_, attachment)) next_->bound[*ordinal] = false;
  }
  const bool forgotten = SY_MUTANT(options_.mutant, kLostLinkForgotten);
  if (options_.on_down && !forgotten) options_.on_down(attachment, why);
  attachment.Close();
}

bool EpochBinder::Poll(TimePoint now) {
  bool changed = Switch(now);
  changed |= ReleaseEnded();
  changed |= LosePlannedOut(now);
  for (const std::unique_ptr<Attachment>& attachment : attachments_) {
    if (attachment->state != Attachment::State::kDown || attachment->retry_at > now) continue;
    if (!Uses(current_.get(), *attachment) && !Uses(next_.get(), *attachment)) continue;
    StartAttach(*attachment, now);
    changed = true;
  }
  return changed;
}

bool EpochBinder::Switch(TimePoint now) {
  if (next_ == nullptr) return false;
  const bool at_once = SY_MUTANT(options_.mutant, kSwitchBeforeBound) && current_ != nullptr;
  if (!next_->AllBound() && !at_once) return false;
  if (current_ != nullptr) ending_.push_back(std::move(current_));
  if (SY_MUTANT(options_.mutant, kReleaseEarly) && !ending_.empty()) {
    const BoundPlan& left = *ending_.back();
    for (Attachment* attachment : left.workers) ReleaseAt(*attachment, left.plan.epoch);
  }
  switched_at_ = now;
  current_ = std::move(next_);
  return true;
}

bool EpochBinder::ReleaseEnded() {
  bool released = false;
  for (std::unique_ptr<BoundPlan>& old : ending_) {
    if (old->steps > 0) continue;
    for (Attachment* attachment : old->workers) {
      ReleaseAt(*attachment, old->plan.epoch);
    }
    old.reset();
    released = true;
  }
  if (!released) return false;
  std::erase(ending_, nullptr);
  CloseUnused();
  return true;
}

// A worker that left in order has answered by now; one that did not never will, and the epoch that
// its steps hold must end.
bool EpochBinder::LosePlannedOut(TimePoint now) {
  if (ending_.empty() || now < switched_at_ + options_.planned_out_grace) return false;
  bool lost = false;
  for (const std::unique_ptr<Attachment>& attachment : attachments_) {
    if (!IsPlannedOut(*attachment)) continue;
    Lose(*attachment,
         MakeError(
             absl::StatusCode::kUnavailable, Reason::kWorkerLost,
             absl::StrFormat("the committed plan no longer holds worker %s", attachment->worker.id),
             {{"worker", attachment->worker.id}}),
         now);
    lost = true;
  }
  return lost;
}

void EpochBinder::CloseUnused() {
  for (std::unique_ptr<Attachment>& attachment : attachments_) {
    if (InUse(*attachment)) continue;
    attachment->Close();
    if (Attachment* heir = SuccessorOf(*attachment)) heir->AbsorbCounts(*attachment);
    attachment.reset();
  }
  std::erase(attachments_, nullptr);
}

void EpochBinder::CloseAll() {
  if (options_.own_experts != nullptr) options_.own_experts->Close(options_.grant.session);
  for (std::unique_ptr<Attachment>& attachment : attachments_) attachment->Close();
  next_.reset();
  current_.reset();
  ending_.clear();
  attachments_.clear();
}

// What goes on with the same worker on larger slots; nullptr when nothing does.
Attachment* EpochBinder::SuccessorOf(const Attachment& ended) const {
  for (const std::unique_ptr<Attachment>& attachment : attachments_) {
    if (attachment == nullptr || attachment.get() == &ended) continue;
    if (SameLife(attachment->worker, ended.worker) && InUse(*attachment)) return attachment.get();
  }
  return nullptr;
}

absl::Status EpochBinder::coming_error() const {
  if (next_ == nullptr) return absl::OkStatus();
  for (const Attachment* attachment : next_->workers) {
    const bool ready = attachment->state == Attachment::State::kReady;
    if (!ready && !attachment->down_why.ok()) return attachment->down_why;
  }
  return absl::OkStatus();
}

bool EpochBinder::Uses(const BoundPlan* binding, const Attachment& attachment) const {
  return binding != nullptr && OrdinalOf(*binding, attachment).has_value();
}

// Only an epoch that ends still uses it, and the worker itself is in no plan any more. One that was
// left for larger slots is of a worker that lives: what it still owes will come.
bool EpochBinder::IsPlannedOut(const Attachment& attachment) const {
  if (attachment.own || attachment.state != Attachment::State::kReady) return false;
  const auto holds = [&attachment](const BoundPlan* binding) {
    return binding != nullptr &&
           std::any_of(
               binding->plan.workers.begin(), binding->plan.workers.end(),
               [&](const PlanWorker& worker) { return SameLife(worker, attachment.worker); });
  };
  return !holds(current_.get()) && !holds(next_.get());
}

bool EpochBinder::InUse(const Attachment& attachment) const {
  if (Uses(current_.get(), attachment) || Uses(next_.get(), attachment)) return true;
  return std::any_of(
      ending_.begin(), ending_.end(),
      [&](const std::unique_ptr<BoundPlan>& binding) { return Uses(binding.get(), attachment); });
}

std::optional<TimePoint> EpochBinder::NextDeadline() const {
  std::optional<TimePoint> first;
  const bool waits_for_planned_out =
      !ending_.empty() &&
      std::any_of(attachments_.begin(), attachments_.end(),
                  [this](const std::unique_ptr<Attachment>& a) { return IsPlannedOut(*a); });
  if (waits_for_planned_out) first = switched_at_ + options_.planned_out_grace;
  for (const std::unique_ptr<Attachment>& attachment : attachments_) {
    if (attachment->state != Attachment::State::kDown) continue;
    // As Poll: what only an ending epoch uses is not made again.
    if (!Uses(current_.get(), *attachment) && !Uses(next_.get(), *attachment)) continue;
    first = first.has_value() ? std::min(*first, attachment->retry_at) : attachment->retry_at;
  }
  return first;
}

}  // namespace switchyard
