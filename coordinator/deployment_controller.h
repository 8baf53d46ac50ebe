// One deployment: watches the members, decides when it needs another epoch, and brings that epoch
// from a number to serving.
//
// Level-triggered: what happens only changes what is known; Evaluate compares what is with what
// ought to be and takes the next step, so that one code path serves the first epoch, a death, a
// join, a leave, a changed deployment and a coordinator that came back.
//
// Words: S is the epoch that serves (sources were told of it); the change is the one epoch on its
// way. A worker holds at most S and the change; anything else it holds is aborted or retired, and
// no change starts before it is gone (I6). Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "coordinator/deployment.h"
#include "coordinator/epoch_change.h"
#include "coordinator/membership.h"
#include "coordinator/memory_ledger.h"
#include "coordinator/options.h"
#include "coordinator/placement/placement_policy.h"
#include "coordinator/plan_builder.h"
#include "coordinator/recovery.h"
#include "coordinator/view.h"
#include "core/base/clock.h"
#include "core/control_messages.h"
#include "core/rng.h"
#include "core/session_messages.h"

namespace switchyard {

// What all deployments of a coordinator share; outlives them.
struct ControllerContext {
  const CoordinatorOptions* options = nullptr;
  Membership* members = nullptr;
  const PlacementPolicy* placement = nullptr;
  MemoryLedger* memory = nullptr;
  Rng* rng = nullptr;
  Outbox* out = nullptr;
};

class DeploymentController {
 public:
  // New, and stored.
  DeploymentController(ControllerContext context, DeploymentRecord record, TimePoint now);
  // As the store has it: every worker of its plans has join_timeout to come back.
  DeploymentController(ControllerContext context, RecoveredDeployment stored, TimePoint now);

  // What happened.
  void SetRecord(DeploymentRecord record);
  void OnJoined(const Member& member, TimePoint now);
  void OnMembersChanged(TimePoint now);
  void OnLeaveAsked(TimePoint now);
  void OnPrepareAck(Member& member, const PrepareAck& ack);
  void OnPrepareNack(Member& member, const PrepareNack& nack);
  void OnCommitAck(Member& member, const CommitAck& ack);
  void OnCommitNack(Member& member, const CommitNack& nack);
  void OnRetireAck(Member& member, const RetireAck& ack);
  // False when the write is none of this deployment's.
  bool OnStoreWritten(WriteId write, const absl::Status& status, TimePoint now);

  // Takes every step that is due.
  void Evaluate(TimePoint now);
  // The plan that has come to serve since the last call; null when none has.
  std::shared_ptr<const PlanUpdate> TakeNews() { return std::exchange(news_, nullptr); }

  [[nodiscard]] const DeploymentRecord& record() const { return *record_; }
  [[nodiscard]] const std::shared_ptr<const PlanUpdate>& serving() const { return serving_; }
  // Sources may hold this plan.
  [[nodiscard]] bool WasAnnounced(Epoch epoch, const PlanHash& hash) const;
  // OK while every worker of S is there and holds it; else kUnavailable (NOT_READY), saying why, or
  // the refusal of what was asked for: no worker mends that (coordinator/refusal.h).
  [[nodiscard]] absl::Status CheckServes() const;
  // Of the workers of S that are there, in the plan's order.
  [[nodiscard]] std::vector<CapabilitySet> ServingCapabilities() const;
  // `member` holds something of this deployment, and somebody is there to take it over.
  [[nodiscard]] bool Needs(const Member& member) const;
  [[nodiscard]] DeploymentView View() const;
  // "1 of 3 are there (w0)" while there are fewer than `min_workers`; empty when there are not.
  [[nodiscard]] std::string MissingWorkers() const;
  // What a plan for `record` would be now. Changes nothing. Errors: what no worker mends as
  // coordinator/refusal.h has it; else kUnavailable (NOT_READY), naming who is there.
  [[nodiscard]] absl::StatusOr<PlanDraft> DraftFor(const DeploymentRecord& record,
                                                   TimePoint now) const;

 private:
  struct Failure {
    absl::Status why;
    std::set<std::string> culprits;
    bool at_once = false;  // the next try needs no delay: the cause has gone away
  };
  struct Strikes {
    int count = 0;
    TimePoint last_at;
    std::optional<TimePoint> excluded_until;
    std::string why;
  };

  // deployment_change.cc: the change.
  void StartChange(TimePoint now);
  void BeginPreparing(TimePoint now);
  void Advance(TimePoint now);
  void AdvanceAsking(TimePoint now);
  void AdvanceMarking(TimePoint now);
  void AskForPrepare(Member& member, const Hold* hold);
  void AskForCommit(Member& member, const Hold* hold);
  [[nodiscard]] bool HasRoom(const Member& member) const;
  std::optional<Failure> FailureOfChange(TimePoint now) const;
  void BeginWriting();
  void BeginCommitting(TimePoint now);
  void BeginMarking();
  void Serve();
  void DropChange(Failure failure, TimePoint now);
  void BackOff(TimePoint now);
  [[nodiscard]] Epoch NextEpoch() const;
  void PromiseMemory();

  // deployment_controller.cc: everything around it.
  void Reconcile();
  void ReconcileMember(Member& member);
  void Judge();
  void Consider(TimePoint now);
  void Tell(const std::vector<Warning>& warnings);
  [[nodiscard]] std::string WhyWait(TimePoint now);
  [[nodiscard]] std::string WhyWaitForFirst(TimePoint now);
  [[nodiscard]] std::string WhoHoldsOthers() const;
  [[nodiscard]] std::vector<Candidate> Candidates() const;
  [[nodiscard]] bool IsExcluded(const std::string& worker, TimePoint now) const;
  [[nodiscard]] bool ServingHolds() const;
  [[nodiscard]] bool IsServing(const EpochKey& key, const PlanHash& hash) const;
  [[nodiscard]] bool IsChanging(const EpochKey& key, const PlanHash& hash) const;
  [[nodiscard]] bool IsLost(const PlanWorker& worker) const;
  [[nodiscard]] const std::string& name() const { return record_->spec.name; }
  void ForgetOldStrikes(TimePoint now);

  ControllerContext context_;
  std::shared_ptr<const DeploymentRecord> record_;  // never null
  Epoch high_water_;
  std::shared_ptr<const PlanUpdate> serving_;
  std::shared_ptr<const PlanUpdate> served_before_;
  std::shared_ptr<const PlanUpdate> news_;
  std::optional<EpochChange> change_;

  bool dirty_ = true;                            // what ought to be may differ from what is
  TimePoint not_before_;                         // of the next change
  int failures_ = 0;                             // in a row
  TimePoint settled_at_;                         // joins and leaves up to here come into one epoch
  TimePoint started_at_;                         // of this deployment, in this coordinator
  std::optional<TimePoint> first_candidate_at_;  // while nothing serves
  std::set<std::string> expected_;  // workers of stored plans that have not come back so far
  std::map<std::string, Strikes> strikes_;
  std::vector<std::string> left_out_;
  std::vector<Warning> warnings_;  // of the last draft
  std::string activity_ = "waiting for workers";
  absl::Status problem_;
  absl::Status refusal_;       // of the record, by every kind of worker; OK when some kind would do
  bool refused_here_ = false;  // `problem_` is a refusal (IsRefusal) by the workers at hand
};

}  // namespace switchyard
