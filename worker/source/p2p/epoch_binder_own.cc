// The binding of epochs at the process's own experts, and the deadlines that every binding carries.
#include "core/base/error.h"
#include "worker/source/p2p/epoch_binder.h"

namespace switchyard {

// The worker has committed the epoch before the coordinator announced it, so this fails only where
// it has been retired since; a newer plan is on its way then.
void EpochBinder::BindOwn(std::size_t ordinal, TimePoint now) {
  Attachment& attachment = *next_->workers[ordinal];
  const absl::Status bound = options_.own_experts->Bind({.deployment = next_->plan.deployment,
                                                         .session = options_.grant.session,
                                                         .epoch = next_->plan.epoch,
                                                         .hash = next_->hash,
                                                         .step_deadline = step_deadline_});
  next_->confirmed[ordinal] = bound.ok();
  if (bound.ok()) {
    attachment.state = Attachment::State::kReady;
    attachment.backoff = {};
    return;
  }
  // The state stays: steps of the current epoch go on.
  attachment.down_why = bound;
  last_error_ = bound;
  if (current_ == nullptr && ReasonOf(bound) != Reason::kStaleEpoch) fatal_ = bound;
  ScheduleRetry(attachment, now);
}

bool EpochBinder::RetryOwn(TimePoint now) {
  if (next_ == nullptr) return false;
  for (std::size_t w = 0; w < next_->workers.size(); ++w) {
    const Attachment& attachment = *next_->workers[w];
    if (!attachment.own || next_->confirmed[w] || attachment.retry_at > now) continue;
    BindOwn(w, now);
    return true;
  }
  return false;
}

BindRequest EpochBinder::BindRequestFor(const BoundPlan& bound) const {
  return {.epoch = bound.plan.epoch, .hash = bound.hash, .step_deadline = step_deadline_};
}

// By another Bind of the epoch that the step is of. A deadline holds for all epochs of an
// attachment, so one message for each worker is enough.
void EpochBinder::OnStepDeadline(Duration deadline) {
  if (deadline <= step_deadline_ || current_ == nullptr) return;
  step_deadline_ = deadline;
  for (std::size_t w = 0; w < current_->workers.size(); ++w) {
    Attachment& attachment = *current_->workers[w];
    if (!current_->confirmed[w]) continue;
    if (attachment.own) {
      options_.own_experts
          ->Bind({.deployment = current_->plan.deployment,
                  .session = options_.grant.session,
                  .epoch = current_->plan.epoch,
                  .hash = current_->hash,
                  .step_deadline = step_deadline_})
          .IgnoreError();
    } else if (attachment.state == Attachment::State::kReady) {
      attachment.stream->Bind(BindRequestFor(*current_));
    }
  }
}

}  // namespace switchyard
