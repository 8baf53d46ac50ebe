#include "worker/source/p2p/epoch_binder.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/source/p2p/slot_bytes.h"
#include "worker/source/session_model.h"

namespace switchyard {
namespace {

// A restarted worker keeps its id but not its memory: it must be attached again.
bool SameLife(const PlanWorker& a, const PlanWorker& b) {
  return a.id == b.id && a.incarnation == b.incarnation;
}

}  // namespace

EpochBinder::EpochBinder(BinderOptions options)
    : options_(std::move(options)), step_deadline_(options_.grant.request.step_deadline) {}

EpochBinder::~EpochBinder() { CloseAll(); }

absl::Status EpochBinder::Start(TimePoint now) {
  SY_ASSIGN_OR_RETURN(
      std::unique_ptr<BoundPlan> first,
      MakeBoundPlan({options_.grant.plan, options_.grant.hash}, options_.grant.request,
                    *options_.device, options_.tensors.get()));
  Adopt(std::move(first), now);
  return absl::OkStatus();
}

void EpochBinder::OnPlan(const PlanUpdate& update, TimePoint now) {
  if (ReasonOf(fatal_) == Reason::kModelChanged) return;
  const BoundPlan* newest = next_ != nullptr ? next_.get() : current_.get();
  // A coordinator that was dialed again may repeat the plan, or lag behind another.
  if (newest != nullptr && !(newest->plan.epoch < update.plan.epoch)) return;
  if (absl::Status same = CheckSameModel(options_.grant.plan, update.plan); !same.ok()) {
    // A plan that is repeated says the same time again, which began with its first copy.
    model_kept_until_ = std::min(model_kept_until_, now + update.former_kept);
    model_change_ = std::move(same);
    EndFormerModel(now);
    return;
  }
  model_kept_until_ = TimePoint::max();
  model_change_ = absl::OkStatus();
  absl::StatusOr<std::unique_ptr<BoundPlan>> next =
      MakeBoundPlan(update, options_.grant.request, *options_.device, options_.tensors.get());
  if (!next.ok()) {
    // The session stays on the plan that it has; a later plan may be usable again.
    last_error_ = next.status();
    return;
  }
  for (const std::unique_ptr<Attachment>& attachment : attachments_) {
    const bool lost = std::find(update.lost.begin(), update.lost.end(),
                                attachment->worker.incarnation) != update.lost.end();
    attachment->dead = attachment->dead || lost;
  }
  Adopt(*std::move(next), now);
}

bool EpochBinder::EndFormerModel(TimePoint now) {
  if (now < model_kept_until_) return false;
  model_kept_until_ = TimePoint::max();
  fatal_ = std::exchange(model_change_, absl::OkStatus());
  DropNext();
  if (current_ != nullptr) ending_.push_back(std::move(current_));
  switched_at_ = now;
  CloseUnused();
  return true;
}

void EpochBinder::Adopt(std::unique_ptr<BoundPlan> next, TimePoint now) {
  DropNext();
  next_ = std::move(next);
  for (std::size_t w = 0; w < next_->workers.size(); ++w) {
    next_->workers[w] = FindOrAdd(*next_, w);
    next_->workers[w]->ordinal = w;
  }
  // After FindOrAdd, which may take over an attachment that only the overtaken plan needed.
  CloseUnused();
  for (std::size_t w = 0; w < next_->workers.size(); ++w) {
    Attachment& attachment = *next_->workers[w];
    attachment.dead = false;  // It has registered again.
    if (attachment.own) {
      BindOwn(w, now);
    } else if (attachment.state == Attachment::State::kReady) {
      // On the open stream: an epoch change costs one message for each worker, not a new ring.
      attachment.stream->Bind(BindRequestFor(*next_));
    } else if (attachment.state == Attachment::State::kDown) {
      StartAttach(attachment, now);
    }
  }
}

// A newer plan overtook `next_`: workers that bound it would otherwise keep its memory for this
// session for ever.
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

Attachment* EpochBinder::FindOrAdd(const BoundPlan& bound, std::size_t ordinal) {
  const PlanWorker& worker = bound.plan.workers[ordinal];
  StagingBytes need =
      SlotBytesOf(bound, WorkerOrdinal{static_cast<std::int32_t>(ordinal)}, options_.chunk_rows);
  // The newest first: it has the largest slots, and an older one closes with the last of its steps.
  for (auto it = attachments_.rbegin(); it != attachments_.rend(); ++it) {
    const Attachment& attachment = **it;
    if (!SameLife(attachment.worker, worker)) continue;
    if (attachment.own || Holds(attachment.slot_bytes, need)) return it->get();
    need = LargerOf(need, attachment.slot_bytes);
  }
  auto attachment = std::make_unique<Attachment>();
  attachment->slot_bytes = need;
  attachment->runner = options_.runner;
  attachment->worker = worker;
  attachment->own = !options_.own_worker_id.empty() && worker.id == options_.own_worker_id;
  attachments_.push_back(std::move(attachment));
  return attachments_.back().get();
}

bool EpochBinder::Knows(Epoch epoch) const {
  const auto is = [epoch](const BoundPlan* bound) {
    return bound != nullptr && bound->plan.epoch == epoch;
  };
  return is(current_.get()) || is(next_.get()) ||
         std::any_of(ending_.begin(), ending_.end(),
                     [&](const std::unique_ptr<BoundPlan>& bound) { return is(bound.get()); });
}

void EpochBinder::BindNewer(Attachment& attachment, Epoch attached) {
  if (next_ != nullptr && Uses(next_.get(), attachment) && attached < next_->plan.epoch) {
    attachment.stream->Bind(BindRequestFor(*next_));
  }
}

void EpochBinder::MarkBound(Attachment& attachment, Epoch epoch) {
  // Also for the current epoch: an attachment that was lost and made again confirms that one anew.
  for (BoundPlan* bound : {current_.get(), next_.get()}) {
    if (bound == nullptr || bound->plan.epoch != epoch) continue;
    if (const auto ordinal = bound->OrdinalOf(attachment)) bound->confirmed[*ordinal] = true;
  }
}

void EpochBinder::OnBound(const BoundEvent& event, TimePoint now) {
  Attachment* attachment = FindBySerial(event.serial);
  if (attachment == nullptr) return;
  // The answer to OnStepDeadline, whose epoch is bound already. One that the worker no longer keeps
  // is refused step by step.
  if (current_ != nullptr && event.epoch == current_->plan.epoch) return;
  // A worker that refuses an epoch has it not, or has lost the attachment: begin anew with both.
  if (!event.result.ok()) {
    Lose(*attachment, event.result, now);
    return;
  }
  MarkBound(*attachment, event.epoch);
}

void EpochBinder::Lose(Attachment& attachment, const absl::Status& why, TimePoint now) {
  attachment.state = Attachment::State::kDown;
  attachment.down_why = why;
  last_error_ = why;
  // The next Poll ends the session. Not here: callers look through the attachments.
  if (!model_change_.ok()) model_kept_until_ = now;
  ScheduleRetry(attachment, now);
  // A new life of the attachment must confirm the coming epoch again. It attaches for the current
  // one, which confirms that one by itself.
  if (next_ != nullptr) {
    if (const auto ordinal = next_->OrdinalOf(attachment)) next_->confirmed[*ordinal] = false;
  }
  // Before Close: steps that fail must not read rows of a ring that is gone, and giving up their
  // credits must find them.
  if (options_.on_down) options_.on_down(attachment, why);
  attachment.Close(options_.transport);
}

void EpochBinder::ScheduleRetry(Attachment& attachment, TimePoint now) const {
  attachment.backoff =
      std::clamp(attachment.backoff * 2, options_.backoff_min, options_.backoff_max);
  // Jitter, so that the sources of a worker that restarts do not all attach at the same moment.
  const double jitter = 0.5 + options_.rng->Uniform();
  attachment.retry_at =
      now +
      Duration(static_cast<std::int64_t>(static_cast<double>(attachment.backoff.count()) * jitter));
}

bool EpochBinder::Poll(TimePoint now) {
  bool changed = EndFormerModel(now);
  changed |= RetryOwn(now);
  changed |= Switch(now);
  changed |= ReleaseEnded();
  changed |= LoseDead(now);
  for (const std::unique_ptr<Attachment>& attachment : attachments_) {
    if (attachment->own || attachment->state != Attachment::State::kDown) continue;
    if (attachment->retry_at > now) continue;
    // An ending epoch takes no new steps, and a new ring would not bring back its old ones.
    if (!Uses(current_.get(), *attachment) && !Uses(next_.get(), *attachment)) continue;
    StartAttach(*attachment, now);
    changed = true;
  }
  return changed;
}

bool EpochBinder::Switch(TimePoint now) {
  if (next_ == nullptr) return false;
  // A step needs any worker of its plan, and one that has not bound the epoch would refuse its
  // rows.
  if (!next_->AllConfirmed()) return false;
  if (current_ != nullptr) ending_.push_back(std::move(current_));
  // The grace of workers that are dead begins here.
  switched_at_ = now;
  current_ = std::move(next_);
  return true;
}

bool EpochBinder::ReleaseEnded() {
  bool released = false;
  for (std::unique_ptr<BoundPlan>& old : ending_) {
    // The worker may free the epoch's experts as soon as it reads the release.
    if (old->steps > 0) continue;
    for (Attachment* attachment : old->workers) {
      ReleaseAt(*attachment, old->plan.epoch);
    }
    old.reset();
    released = true;
  }
  if (!released) return false;
  // After the releases, which need the attachments.
  std::erase(ending_, nullptr);
  CloseUnused();
  return true;
}

// A worker that leaves in order answers its last steps, however long they take, and its stream says
// when it is gone. One that the coordinator has lost may be stopped or cut off, and no message may
// ever say so: without this its steps would hold the old epoch until their deadlines, which may be
// minutes.
bool EpochBinder::LoseDead(TimePoint now) {
  // Without a current plan the session has ended, and its last steps have their deadlines.
  if (current_ == nullptr) return false;
  if (ending_.empty() || now < switched_at_ + options_.lost_grace) return false;
  bool lost = false;
  for (const std::unique_ptr<Attachment>& attachment : attachments_) {
    if (!IsDead(*attachment)) continue;
    Lose(*attachment,
         MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost,
                   absl::StrFormat("the coordinator has lost worker %s, and the committed plan "
                                   "does without it",
                                   attachment->worker.id),
                   {{"worker", attachment->worker.id}}),
         now);
    lost = true;
  }
  return lost;
}

void EpochBinder::CloseUnused() {
  for (std::unique_ptr<Attachment>& attachment : attachments_) {
    // An ending epoch still awaits replies on its attachments.
    if (InUse(*attachment)) continue;
    attachment->Close(options_.transport);
    if (Attachment* successor = SuccessorOf(*attachment)) successor->AbsorbCounts(*attachment);
    attachment.reset();
  }
  std::erase(attachments_, nullptr);
}

void EpochBinder::CloseAll() {
  // No Release here: the end of its stream releases everything that an attachment holds.
  if (options_.own_experts != nullptr) options_.own_experts->Close(options_.grant.session);
  for (std::unique_ptr<Attachment>& attachment : attachments_)
    attachment->Close(options_.transport);
  next_.reset();
  current_.reset();
  ending_.clear();
  // Last: the plans point at them.
  attachments_.clear();
}

// The attachment that goes on with the same worker on larger slots; nullptr when there is none.
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

bool EpochBinder::Uses(const BoundPlan* bound, const Attachment& attachment) const {
  return bound != nullptr && bound->OrdinalOf(attachment).has_value();
}

// An attachment that was left for larger slots does not count where a newer plan has its worker.
bool EpochBinder::IsDead(const Attachment& attachment) const {
  if (!attachment.dead || attachment.own || attachment.state != Attachment::State::kReady) {
    return false;
  }
  const auto holds = [&attachment](const BoundPlan* bound) {
    return bound != nullptr && std::any_of(bound->plan.workers.begin(), bound->plan.workers.end(),
                                           [&](const PlanWorker& worker) {
                                             return SameLife(worker, attachment.worker);
                                           });
  };
  return !holds(current_.get()) && !holds(next_.get());
}

bool EpochBinder::InUse(const Attachment& attachment) const {
  if (Uses(current_.get(), attachment) || Uses(next_.get(), attachment)) return true;
  return std::any_of(ending_.begin(), ending_.end(), [&](const std::unique_ptr<BoundPlan>& bound) {
    return Uses(bound.get(), attachment);
  });
}

TimePoint EpochBinder::NextDeadline() const {
  TimePoint first = model_kept_until_;
  const bool waits_for_dead =
      current_ != nullptr && !ending_.empty() &&
      std::any_of(attachments_.begin(), attachments_.end(),
                  [this](const std::unique_ptr<Attachment>& a) { return IsDead(*a); });
  if (waits_for_dead) first = std::min(first, switched_at_ + options_.lost_grace);
  for (std::size_t w = 0; next_ != nullptr && w < next_->workers.size(); ++w) {
    if (next_->workers[w]->own && !next_->confirmed[w]) {
      first = std::min(first, next_->workers[w]->retry_at);
    }
  }
  for (const std::unique_ptr<Attachment>& attachment : attachments_) {
    if (attachment->own || attachment->state != Attachment::State::kDown) continue;
    // As in Poll: an attachment that only an ending epoch uses is not made again.
    if (!Uses(current_.get(), *attachment) && !Uses(next_.get(), *attachment)) continue;
    first = std::min(first, attachment->retry_at);
  }
  return first;
}

}  // namespace switchyard
