#include "coordinator/replan_gate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace switchyard {

std::string MissingWorkers(const std::vector<std::string>& candidates, int min_workers) {
  if (static_cast<int>(candidates.size()) >= min_workers) return "";
  return absl::StrFormat("%d of %d are connected (%s)", candidates.size(), min_workers,
                         candidates.empty() ? "none" : absl::StrJoin(candidates, ", "));
}

void ReplanGate::ExpectWorkersOf(const PlanUpdate* stored) {
  // A set: both the serving and a committed plan may name the same worker.
  if (stored == nullptr) return;
  for (const PlanWorker& worker : stored->plan.workers) expected_.insert(worker.id);
}

void ReplanGate::OnJoined(const std::string& worker, TimePoint now) {
  expected_.erase(worker);
  Settle(now);
}

// Leaves settle like joins: a rolling restart drains several workers within moments.
void ReplanGate::OnLeaveRequested(TimePoint now) { Settle(now); }

void ReplanGate::Settle(TimePoint now) {
  if (!unsettled_since_) unsettled_since_ = now;
  // Workers that come and go all the time must not postpone a plan for ever.
  settled_at_ =
      std::min(now + options_->join_settle, *unsettled_since_ + options_->join_settle_most);
}

bool ReplanGate::EndExpectations(Duration join_timeout, TimePoint now) {
  if (expected_.empty() || now < started_at_ + join_timeout) return false;
  expected_.clear();
  return true;
}

bool ReplanGate::AwaitsSourcesOf(Epoch epoch, TimePoint now) const {
  // A source that uses one of this coordinator's own plans has dialed it to learn of that.
  const bool before = first_own_.value == 0 || epoch < first_own_;
  return before && now < started_at_ + options_->sources_return;
}

std::string ReplanGate::ReasonToWait(const DeploymentSpec& spec, const Situation& situation,
                                     TimePoint now) {
  if (!expected_.empty()) {
    return absl::StrCat("waiting for workers of the stored plan to come back: ",
                        absl::StrJoin(expected_, ", "));
  }
  // A third epoch beside two that are held might not fit into the worker's memory (I6).
  if (!situation.holder.empty()) return situation.holder;
  // Its stream may be back within the grace, and then nothing has changed.
  if (!situation.disconnected.empty()) {
    return absl::StrFormat("waiting for worker %s, whose stream has just ended",
                           situation.disconnected);
  }
  if (!situation.serving_worker_present) return ReasonToWaitForFirst(spec, situation, now);
  first_candidate_at_.reset();
  std::string loss = ReasonToWaitAfterLoss(situation, now);
  if (!loss.empty()) return loss;
  // Only while nothing is lost: after a death, every moment without a plan costs steps.
  if (situation.serving_holds && now < settled_at_) {
    return "waiting for more workers to join or leave";
  }
  unsettled_since_.reset();
  return "";
}

std::string ReplanGate::ReasonToWaitAfterLoss(const Situation& situation, TimePoint now) {
  if (situation.lost_workers > lost_workers_) lost_at_ = now;
  lost_workers_ = situation.lost_workers;
  // One of two workers is more than a third and no mass loss.
  const bool many = lost_workers_ >= 2 && 3 * lost_workers_ > situation.serving_workers;
  if (!many || now >= lost_at_ + options_->mass_loss_hold) return "";
  return absl::StrFormat("%d of %d workers are lost: waiting for them to come back", lost_workers_,
                         situation.serving_workers);
}

std::string ReplanGate::ReasonToWaitForFirst(const DeploymentSpec& spec, const Situation& situation,
                                             TimePoint now) {
  // The time-out belongs to workers that wait. When all have gone, it starts again with the next
  // one.
  if (situation.candidates.empty()) {
    first_candidate_at_.reset();
  } else if (!first_candidate_at_) {
    first_candidate_at_ = now;
  }
  const std::string missing = MissingWorkers(situation.candidates, spec.min_workers);
  if (missing.empty()) return "";
  // After the time-out a plan with fewer workers is tried: service with less room beats none.
  if (first_candidate_at_ && now >= *first_candidate_at_ + spec.join_timeout) return "";
  return absl::StrCat("waiting for workers: ", missing);
}

}  // namespace switchyard
