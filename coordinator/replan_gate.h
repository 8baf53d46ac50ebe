// Decides when a deployment may plan its next epoch, and says what it waits for until then.
//
// Planning too early is expensive: an epoch that is made just before the third worker registers is
// made again right after, and each one moves weights. So the gate waits for workers of stored plans
// to come back, for old epochs to be freed, for joins, leaves and losses of many workers to settle,
// and before the first epoch for `min_workers`. Each wait is bounded: `join_timeout`, the worker's
// lease, join_settle_most, mass_loss_hold after the last loss.
// Not thread-safe.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/spec/deployment.h"
#include "coordinator/spec/options.h"
#include "core/base/clock.h"
#include "core/session_messages.h"

namespace switchyard {

// "1 of 3 are connected (w0)" while there are fewer candidates than `min_workers`; empty otherwise.
std::string MissingWorkers(const std::vector<std::string>& candidates, int min_workers);

class ReplanGate {
 public:
  // `options` outlives it; `now` is when this coordinator took the deployment on.
  ReplanGate(const CoordinatorOptions* options, TimePoint now)
      : options_(options), started_at_(now) {}

  // Workers of a stored plan, if any, have join_timeout to come back before they count as lost: a
  // coordinator that restarts must not move experts only because it registers workers one by one.
  void ExpectWorkersOf(const PlanUpdate* stored);
  [[nodiscard]] bool Expects(const std::string& worker) const { return expected_.contains(worker); }

  void OnJoined(const std::string& worker, TimePoint now);
  void OnLeaveRequested(TimePoint now);
  // Stops expecting workers once join_timeout is over. True when some were still expected.
  bool EndExpectations(Duration join_timeout, TimePoint now);

  // This coordinator has given out the number.
  void OnOwnEpoch(Epoch epoch) {
    if (first_own_.value == 0) first_own_ = epoch;
  }
  // Sources that use the epoch may not have dialed this coordinator yet (sources_return): it is
  // older than all of its own.
  [[nodiscard]] bool AwaitsSourcesOf(Epoch epoch, TimePoint now) const;

  // The state of members and epochs, which the gate does not know.
  struct Situation {
    // Why an old epoch is in the way; empty: none is.
    std::string holder;
    // A worker of the serving plan in its grace; empty: none.
    std::string disconnected;
    // Some worker of the serving plan is a member.
    bool serving_worker_present = false;
    // All of them are, and hold it.
    bool serving_holds = false;
    // Workers of the serving plan, and how many of them no member has the id of: one that restarted
    // is not lost.
    int serving_workers = 0;
    int lost_workers = 0;
    // Connected workers that do not leave and that the deployment can use.
    std::vector<std::string> candidates;
  };
  // Why no change may start at `now`; empty when one may. Time counts from call to call: before
  // the first epoch join_timeout runs from the first call with a candidate.
  std::string ReasonToWait(const DeploymentSpec& spec, const Situation& situation, TimePoint now);

 private:
  std::string ReasonToWaitForFirst(const DeploymentSpec& spec, const Situation& situation,
                                   TimePoint now);
  // A join or leave at `now` postpones the next plan.
  void Settle(TimePoint now);
  std::string ReasonToWaitAfterLoss(const Situation& situation, TimePoint now);

  const CoordinatorOptions* options_;
  TimePoint started_at_;
  // Joins and leaves until then share one epoch.
  TimePoint settled_at_;
  // The first join or leave since the gate was last open.
  std::optional<TimePoint> unsettled_since_;
  int lost_workers_ = 0;
  TimePoint lost_at_;                            // when lost_workers_ last rose
  std::optional<TimePoint> first_candidate_at_;  // while no worker serves
  std::set<std::string> expected_;
  Epoch first_own_;  // 0: none so far
};

}  // namespace switchyard
