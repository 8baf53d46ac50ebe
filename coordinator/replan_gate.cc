#include "coordinator/replan_gate.h"

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
  settled_at_ = now + options_->join_settle;
}

// Leaves settle like joins: a rolling restart drains several workers within moments.
void ReplanGate::OnLeaveRequested(TimePoint now) { settled_at_ = now + options_->join_settle; }

bool ReplanGate::EndExpectations(Duration join_timeout, TimePoint now) {
  if (expected_.empty() || now < started_at_ + join_timeout) return false;
  expected_.clear();
  return true;
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
  // Only while nothing is lost: after a death, every moment without a plan costs steps.
  if (situation.serving_holds && now < settled_at_) {
    return "waiting for more workers to join or leave";
  }
  return "";
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
