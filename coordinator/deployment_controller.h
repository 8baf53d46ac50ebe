// One deployment: decides when it needs a new epoch, and brings that epoch into service.
//
// Level-triggered: events only change what is known; Evaluate compares what is with what should be
// and takes the next step, so that one code path serves the first epoch, a death, a join, a leave,
// a changed deployment and a coordinator that restarted.
//
// At any time there is at most one serving epoch (sources use it) and one change (EpochChange). A
// worker holds at most these two; it is made to drop anything else, and no change starts before
// that has happened (I6). The parts: ReplanGate says when to plan, ProposePlan makes the plan,
// EpochChange brings it into service, EpochRule says what workers have to drop, Quarantine counts
// failures, Revisions keeps what it was applied as. This class connects them with the members and
// the outbox. Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"

#include "coordinator/epoch_change.h"
#include "coordinator/epoch_drops.h"
#include "coordinator/history/applied_record.h"
#include "coordinator/history/revisions.h"
#include "coordinator/membership.h"
#include "coordinator/outbox.h"
#include "coordinator/placement/former_shares.h"
#include "coordinator/placement/memory_ledger.h"
#include "coordinator/placement/placement_policy.h"
#include "coordinator/plan_builder.h"
#include "coordinator/progress/deployment_status.h"
#include "coordinator/progress/retry_delay.h"
#include "coordinator/quarantine.h"
#include "coordinator/recovery.h"
#include "coordinator/replan_gate.h"
#include "coordinator/serving_epoch.h"
#include "coordinator/spec/deployment_record.h"
#include "coordinator/spec/options.h"
#include "coordinator/view.h"
#include "core/base/clock.h"
#include "core/control_messages.h"
#include "core/rng.h"
#include "core/session_messages.h"

namespace switchyard {

// The parts that all deployments of a coordinator share; they outlive the deployments.
struct ControllerContext {
  const CoordinatorOptions* options = nullptr;
  Membership* members = nullptr;
  const PlacementPolicy* placement = nullptr;
  MemoryLedger* memory = nullptr;
  Rng* rng = nullptr;
  Outbox* out = nullptr;
  CoordinatorTimes* times = nullptr;
};

class DeploymentController {
 public:
  // For a new deployment, whose record is stored, with the revisions `kept`. Its epochs start above
  // `high_water`.
  DeploymentController(ControllerContext context, DeploymentRecord record, Revisions kept,
                       Epoch high_water, TimePoint now);
  // For one that the store has: every worker of its plans has join_timeout to come back.
  DeploymentController(ControllerContext context, RecoveredDeployment stored, TimePoint now);

  // Events. Nothing is sent before Evaluate, except writes that follow a write.
  // The record, which is stored, is of the newest of the revisions `kept`.
  void SetRecord(DeploymentRecord record, Revisions kept);
  void OnJoined(const Member& member, TimePoint now);
  void OnMembersChanged(TimePoint now);
  void OnLeaveRequested(TimePoint now);
  void OnPrepareAck(Member& member, const PrepareAck& ack);
  void OnPrepareNack(Member& member, const PrepareNack& nack);
  void OnCommitAck(Member& member, const CommitAck& ack);
  void OnCommitNack(Member& member, const CommitNack& nack);
  // The record says from now on that the deployment is being deleted. It goes on serving.
  void MarkDeleting(bool at_once) { applied_.MarkDeleting(at_once); }
  // It serves nobody any more: no epoch is planned, and the change, if there is one, is given up
  // where it can be.
  void StopPlanning();
  // The store has forgotten it: workers drop whatever they hold of it, from the next Evaluate on.
  void Free() {
    free_ = true;
    change_.reset();
  }
  [[nodiscard]] bool freed() const { return free_; }
  // After Free: no member holds anything of it any more.
  [[nodiscard]] bool IsGone() const { return free_ && drops_.FirstHeld().empty(); }
  // False when the write is not one of this deployment.
  bool OnStoreWritten(WriteId write, const absl::Status& status, TimePoint now);

  // Takes every step that is due.
  void Evaluate(TimePoint now);
  // The plan that started to serve since the last call, or the serving one once more when a former
  // model is no longer kept; null: neither. Sources have to learn of it before the next Evaluate,
  // which retires the epoch before it.
  std::shared_ptr<const PlanUpdate> TakeAnnouncement() {
    return std::exchange(announced_, nullptr);
  }
  // A former model is kept, for as many sessions; the next Evaluate ends that if there are none.
  [[nodiscard]] bool keeps_former() const { return serving_.former() != nullptr; }
  void SetFormerSessions(std::int32_t sessions) { serving_.SetFormerSessions(sessions); }

  [[nodiscard]] const DeploymentRecord& record() const { return applied_.record(); }
  // Plans are made from it (AppliedRecord::ChoosePlanned).
  [[nodiscard]] const DeploymentRecord& planned() const { return *applied_.planned(); }
  [[nodiscard]] const ServingEpoch& serving() const { return serving_; }
  [[nodiscard]] const AppliedRecord& applied() const { return applied_; }
  // It serves nothing, and its record is refused: it takes no memory of workers.
  [[nodiscard]] bool refused() const { return serving_.plan() == nullptr && status_.refused(); }
  // OK while every worker of the serving epoch is present and holds it. Else kUnavailable
  // (NOT_READY) with the cause, or, when waiting for workers cannot help, the refusal
  // (coordinator/refusal.h).
  [[nodiscard]] absl::Status CheckServing() const;
  [[nodiscard]] bool deleting() const { return record().deleting; }
  // The highest number that was given out.
  [[nodiscard]] Epoch high_water() const { return high_water_; }
  // `member` holds something of this deployment, and the other workers could take it over.
  [[nodiscard]] bool Needs(const Member& member, TimePoint now) const;
  [[nodiscard]] DeploymentView View(TimePoint now) const;
  // The plan that `record` would get now. Changes nothing. Errors: those of ProposePlan.
  [[nodiscard]] absl::StatusOr<PlanProposal> ProposalFor(const DeploymentRecord& record,
                                                         TimePoint now) const;

 private:
  // Epochs on workers.
  // The rule of this moment; it points into this object.
  [[nodiscard]] EpochRule Rule() const;
  // Sends ABORT and RETIRE for what workers must not hold any more.
  void DropUnwanted(TimePoint now);
  // Sources may hold what a worker has committed (ServingEpoch::NoteCommitted).
  void NoteCommitted(const Member& member);

  // Whether the former model has just ended, which sources have to learn before anything else.
  bool EndFormer(TimePoint now);

  // When and what to plan.
  // After every change of the record: can it be served at all, and what are plans made from?
  void CheckRecord();
  // The serving plan is the one that would be made now.
  void NoteServed();
  // Starts a change if one is needed and nothing speaks against it; else says why not.
  void MaybeReplan(TimePoint now);
  void SetNoPlan(const absl::Status& why);
  void LogWarnings(const std::vector<Warning>& warnings);
  [[nodiscard]] std::string ReasonToWait(TimePoint now);
  // Whether a plan could use this member; its room is not checked.
  [[nodiscard]] absl::Status CheckSuits(const std::string& worker) const;
  // Above every number that was ever given out, as far as store and workers know (I10).
  [[nodiscard]] Epoch NextEpoch() const;

  // The change.
  // kReserving: the number is being written.
  void StartChange(TimePoint now);
  // The number is durable: makes the plan and enters kPreparing, or gives the change up.
  void PrepareChange(TimePoint now);
  // Carries out what EpochChange wants done.
  void AdvanceChange(TimePoint now);
  void OnChangeWritten(const absl::Status& status, TimePoint now);
  void SendChangeWrite() { change_->OnWriteSent(context_.out->Write(change_->WriteToSend())); }
  // The mark is durable: the change becomes the serving epoch.
  void Serve(TimePoint now);
  // Ends the change without success; workers at fault get a strike.
  void DropChange(const ChangeFailure& failure, TimePoint now);
  // Tells the ledger what the serving epoch and the change need.
  void PromiseMemory();
  [[nodiscard]] WorkerStanding StandingOf(const PlanWorker& worker) const;
  // One for each worker of the change's plan; empty while there is none.
  [[nodiscard]] std::vector<WorkerStanding> Standings() const;
  [[nodiscard]] const std::string& name() const { return record().spec.name; }

  ControllerContext context_;
  AppliedRecord applied_;
  // The highest number given out.
  Epoch high_water_;
  ServingEpoch serving_;
  EpochDrops drops_;
  FormerShares former_;
  std::shared_ptr<const PlanUpdate> announced_;  // until TakeAnnouncement
  std::optional<EpochChange> change_;
  TimePoint change_began_{};
  ReplanGate gate_;
  Quarantine quarantine_;
  RetryDelay retry_;
  ChangeCounts changes_;

  bool stopped_ = false;  // StopPlanning
  bool free_ = false;     // Free
  // The plan that should serve may differ from the one that does.
  bool dirty_ = true;
  std::vector<std::string> left_out_;
  std::vector<Warning> warnings_;  // of the last proposal
  DeploymentStatus status_;
};

}  // namespace switchyard
