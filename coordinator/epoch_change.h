// The two-phase switch of one deployment to one new epoch, as a state machine.
//
//   kReserving   the number is being made durable, so that it is never given out again (I10)
//     | durable; the plan is proposed             not durable --> failed
//   kPreparing   PREPARE is sent to every worker of the plan
//     | all ACK                                   NACK, worker lost, time-out --> failed: ABORT
//   kStoring     the plan is being made durable (I2)
//     | durable                                   not durable --> failed: ABORT
//   kCommitting  COMMIT with the plan's hash is sent (I3)
//     | all CommitAck                             NACK, worker lost, time-out --> failed: RETIRE
//   kMarking     "this epoch serves" is being made durable
//     | durable                                   not durable --> written again
//   serves       sources learn of it; the epoch before it is retired
//
// Pure: the caller reports what happened and how each worker stands, and gets back what has to be
// sent or written. The caller (DeploymentController) owns members, effects and the plan's making,
// and afterwards drops what workers hold of a failed or replaced epoch
// (coordinator/members/held_epochs.h). Not thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "coordinator/members/held_epochs.h"
#include "coordinator/progress/progress_view.h"
#include "coordinator/progress/staging_meters.h"
#include "coordinator/spec/deployment_record.h"
#include "coordinator/store/state_store.h"
#include "coordinator/threads/stream_ids.h"
#include "core/base/clock.h"
#include "core/control_messages.h"
#include "core/grant_signature.h"
#include "core/ids.h"
#include "core/session_messages.h"

namespace switchyard {

enum class ChangePhase : std::uint8_t { kReserving, kPreparing, kStoring, kCommitting, kMarking };

// How a worker of the plan stands. The incarnation counts: another process with the same id is not
// this worker.
struct WorkerStanding {
  bool connected = false;
  // It is gone, and no time-out gives it a chance to come back.
  bool lost = false;
  // How far the change's plan is on it; nullopt: it does not hold the plan.
  std::optional<HoldState> hold;
  bool has_room = false;  // EpochRule::HasRoom
  // The epoch that it has to free before PREPARE; nullopt: none.
  std::optional<Epoch> to_free = {};
  // Its reports of the epochs that it loads; null: nothing is known.
  const StagingMeters* staging = nullptr;
};

// Why a change failed.
struct ChangeFailure {
  absl::Status why;
  // Ids of the workers at fault.
  std::set<std::string> culprits = {};
  // The next try need not wait: the cause has gone away.
  bool retry_at_once = false;
};

// The effects that are due now, in this order. After a failure the change is over.
struct ChangeStep {
  std::vector<WorkerOrdinal> prepare;  // send PrepareFor(ordinal)
  std::vector<WorkerOrdinal> commit;   // send CommitMessage()
  std::optional<ChangeFailure> failure;
  // Send the write of WriteToSend().
  bool write = false;
};

class EpochChange {
 public:
  EpochChange(std::string deployment, Epoch epoch)
      : deployment_(std::move(deployment)), epoch_(epoch) {}
  // Resumes in kCommitting, for a plan that the store holds above the serving one: some workers may
  // have been sent COMMIT.
  static EpochChange Resume(std::shared_ptr<const PlanUpdate> update, TimePoint answers_by);

  // kReserving -> kPreparing: the number is durable and the plan is made for it. `record` is what
  // it was made from (the deployment's may be newer by the time a PREPARE is sent again); `keys` go
  // to all of its workers alike; `changes` says for the operator how it differs from the serving
  // one; `nonce` distinguishes this attempt's answers from those of others.
  void BeginPreparing(std::shared_ptr<const PlanUpdate> update,
                      std::shared_ptr<const DeploymentRecord> record, GrantKeys keys,
                      std::string changes, std::uint64_t nonce, TimePoint answers_by);
  // kStoring -> kCommitting: the plan is durable.
  void BeginCommitting(TimePoint answers_by);

  // Takes the step that is due in kPreparing, kCommitting or kMarking. `workers` has one entry for
  // each worker of the plan.
  ChangeStep Advance(std::span<const WorkerStanding> workers, TimePoint now);

  // The write that kReserving, kStoring or kMarking waits for. None of the others has one.
  [[nodiscard]] StoreWrite WriteToSend() const;
  void OnWriteSent(WriteId write) { write_ = write; }
  // True when `write` is the one in progress; then none is any more.
  bool OnWriteDone(WriteId write);
  // kMarking: the write failed and is due again at `at`.
  void RetryMarkAt(TimePoint at) { retry_at_ = at; }

  // Whether an answer belongs to this attempt, by phase, number, nonce, hash and incarnation. The
  // caller then changes the worker's hold, and Advance sees it there.
  [[nodiscard]] bool Accepts(const std::string& worker, const Incarnation& incarnation,
                             const PrepareAck& ack) const;
  [[nodiscard]] bool Accepts(const std::string& worker, const Incarnation& incarnation,
                             const CommitAck& ack) const;
  // The same for refusals, which the next Advance turns into a failure. True when it counts.
  bool OnPrepareNack(const std::string& worker, const Incarnation& incarnation,
                     const PrepareNack& nack);
  bool OnCommitNack(const std::string& worker, const Incarnation& incarnation,
                    const CommitNack& nack);

  // From kPreparing on.
  [[nodiscard]] Prepare PrepareFor(WorkerOrdinal ordinal) const;
  [[nodiscard]] Commit CommitMessage() const { return {deployment_, epoch_, update_->hash}; }
  [[nodiscard]] const Plan& plan() const { return update_->plan; }
  // The record that the plan was made from; `current` after Resume, which does not know it.
  // The record that its plan was made from; null: not known, as after a restart.
  [[nodiscard]] const std::shared_ptr<const DeploymentRecord>& record() const { return record_; }
  [[nodiscard]] const DeploymentRecord& RecordOr(const DeploymentRecord& current) const {
    return record_ == nullptr ? current : *record_;
  }
  [[nodiscard]] EpochKey key() const { return {deployment_, epoch_}; }

  [[nodiscard]] Epoch epoch() const { return epoch_; }
  [[nodiscard]] ChangePhase phase() const { return phase_; }
  [[nodiscard]] const std::shared_ptr<const PlanUpdate>& update() const { return update_; }
  // How far each worker of the plan is; empty in kReserving. `workers` as for Advance.
  [[nodiscard]] std::vector<StagingView> Progress(std::span<const WorkerStanding> workers,
                                                  TimePoint now) const;
  // True every ten seconds of preparing, when the log has to say how far it is.
  bool IsLineDue(TimePoint now);
  // "preparing epoch 4: waiting for w1, w3"; with `progress`, how far each of these is:
  // "w1 (34 of 48 experts), w3 (not begun)".
  [[nodiscard]] std::string Describe(std::span<const StagingView> progress = {}) const;

 private:
  // Starts a phase: no answers, no refusals, a new deadline.
  void EnterPhase(ChangePhase next, TimePoint answers_by);
  // Is it one of the plan's workers, in that incarnation?
  [[nodiscard]] bool Involves(const std::string& worker, const Incarnation& incarnation) const;
  void AddNack(const std::string& worker, const absl::Status& error);
  // Adds what worker `index` has to be sent, or the fact that it cannot go on.
  void Ask(std::size_t index, const WorkerStanding& worker, ChangeStep* step);
  [[nodiscard]] StagingView ProgressOf(std::size_t index, const WorkerStanding& worker,
                                       TimePoint now) const;
  // Ids of the workers that have not acknowledged in this phase.
  [[nodiscard]] std::vector<std::string> Missing() const;
  // A lost worker, else a refusal, else the deadline.
  [[nodiscard]] std::optional<ChangeFailure> FindFailure(std::span<const WorkerStanding> workers,
                                                         TimePoint now) const;

  std::string deployment_;
  Epoch epoch_;
  ChangePhase phase_ = ChangePhase::kReserving;
  // 0: no write is in progress.
  WriteId write_;
  std::shared_ptr<const PlanUpdate> update_;  // null in kReserving
  // Null after Resume, which never prepares.
  std::shared_ptr<const DeploymentRecord> record_;
  GrantKeys keys_;
  std::string changes_;
  std::uint64_t nonce_ = 0;
  // Workers that acknowledged in this phase.
  std::set<std::string> answered_;
  // The latest time for the answers of this phase.
  TimePoint deadline_;
  TimePoint retry_at_;  // kMarking
  TimePoint line_at_;   // of the next line of the log
  // The first refusal of this phase.
  absl::Status nack_;
  std::set<std::string> nacked_by_;
};

}  // namespace switchyard
