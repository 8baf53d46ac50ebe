#include "worker/source/plan_watch.h"

#include <algorithm>
#include <utility>

namespace switchyard {
namespace {

constexpr Duration kBackoffMin = std::chrono::milliseconds(100);
constexpr Duration kBackoffMax = std::chrono::seconds(5);

}  // namespace

PlanWatch::PlanWatch(SessionChannel* channel, const SessionGrant& grant, std::function<void()> wake)
    : channel_(channel), wake_(std::move(wake)) {
  request_.session = grant.session;
  request_.deployment = grant.plan.deployment;
  request_.phase = grant.request.phase;
  const GrantClaims claims = ClaimsOf(grant);
  request_.cookie = claims.cookie;
  request_.mode = claims.mode;
  request_.max_tokens = claims.max_tokens;
  request_.record_amax = claims.record_amax;
  request_.group = claims.group;
  request_.signature = grant.signature;
  Dial(grant.plan.epoch, grant.hash);
}

PlanWatch::~PlanWatch() = default;

void PlanWatch::Dial(Epoch epoch, const PlanHash& hash) {
  request_.epoch = epoch;
  request_.hash = hash;
  retry_at_.reset();
  // The old stream goes before the new one is made: two streams must not use one sink.
  stream_.reset();
  stream_ = channel_->Watch(request_, this);
}

void PlanWatch::OnPlan(const PlanUpdate& update) {
  {
    const MutexLock lock(mutex_);
    update_ = update;  // Replaces a plan that was overtaken before anyone saw it.
  }
  wake_();
}

void PlanWatch::OnWatchEnded(const absl::Status& why) {
  {
    const MutexLock lock(mutex_);
    ended_ = why;
  }
  wake_();
}

bool PlanWatch::Poll(StepRunner& runner, TimePoint now) {
  std::optional<PlanUpdate> update;
  std::optional<absl::Status> ended;
  {
    const MutexLock lock(mutex_);
    update = std::exchange(update_, std::nullopt);
    ended = std::exchange(ended_, std::nullopt);
  }
  if (update.has_value()) {
    // A coordinator that sends plans knows the session, whatever it said before.
    backoff_ = {};
    refused_ = absl::OkStatus();
    runner.OnPlan(*update, now);
  }
  if (ended.has_value()) {
    // These two codes say that the session is unknown; any other end may only be a broken
    // connection.
    if (absl::IsFailedPrecondition(*ended) || absl::IsNotFound(*ended)) refused_ = *ended;
    backoff_ = std::clamp(backoff_ * 2, kBackoffMin, kBackoffMax);
    retry_at_ = now + backoff_;
  }
  if (retry_at_.has_value() && *retry_at_ <= now) {
    // The plan that steps run on, not the newest that was seen: the coordinator then sends the
    // newer one again, in case it never became usable here.
    const RunnerStatus status = runner.Status();
    Dial(status.grant.plan.epoch, status.grant.hash);
  }
  return update.has_value() || ended.has_value();
}

}  // namespace switchyard
