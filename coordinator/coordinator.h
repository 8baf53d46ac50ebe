// The coordinator without I/O: events go in, effects come out.
//
// Step(event, now): the event changes what is known (members, acknowledgements, requests), then
// every deployment takes the steps that are due. Everything that has to be sent, written or
// answered is returned as effects.
//
// It has no threads, clock, disk or network. Equal events give equal effects, so that the driver,
// the tests and the simulation run the same code. Cost: a step looks at every deployment and every
// member, except for heartbeats and progress, which no plan depends on. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/applies.h"
#include "coordinator/deletions.h"
#include "coordinator/deployment_controller.h"
#include "coordinator/duties.h"
#include "coordinator/effects.h"
#include "coordinator/events.h"
#include "coordinator/history/load_history.h"
#include "coordinator/membership.h"
#include "coordinator/outbox.h"
#include "coordinator/placement/memory_ledger.h"
#include "coordinator/placement/placement_policy.h"
#include "coordinator/recovery.h"
#include "coordinator/session_table.h"
#include "coordinator/spec/options.h"
#include "coordinator/view.h"
#include "core/base/clock.h"
#include "core/base/wall_time.h"
#include "core/rng.h"

namespace switchyard {

class Coordinator {
 public:
  // `stored` is what the store holds (coordinator/recovery.h); `placement` and `rng` outlive the
  // coordinator. Sessions are not stored: sources name theirs when they watch again.
  Coordinator(CoordinatorOptions options, const PlacementPolicy* placement, Rng* rng,
              RecoveredState stored, TimePoint now);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // `now` never goes back. The effects must be carried out in order. A `now` far beyond the one
  // before it is taken for a stall of this process, and then every lease starts again. `wall_time`
  // is shown to people, and decides nothing.
  std::vector<Effect> Step(const Event& event, TimePoint now, WallTime wall_time = {});

  // When a Tick has something to do that a caller waits for; max: at no time, as far as is known.
  [[nodiscard]] TimePoint NextDue() const { return applies_.NextDue(); }

  // A snapshot for list, describe and explain. Plans are shared, not copied.
  [[nodiscard]] CoordinatorView View(TimePoint now) const;
  [[nodiscard]] const Journal& journal() const { return out_.journal(); }
  // The rows that the experts of a deployment have served lately.
  [[nodiscard]] LoadView Load(const std::string& deployment, const LoadQuery& query,
                              TimePoint now) const {
    return load_.View(deployment, query, now);
  }
  // Ascending by deployment.
  [[nodiscard]] std::vector<SessionView> Sessions() const { return sessions_.View(now_); }

 private:
  // One handler for each event; none of them evaluates a deployment, which Step does once at the
  // end.
  void On(const StreamOpened& event);
  void On(const StreamMessage& event);
  void On(const StreamClosed& event);
  void On(const WorkerDialed& event);
  void On(const ApplyRequested& event);
  void On(const RollbackRequested& event);
  void On(const DeleteRequested& event);
  void On(const DutyRequested& event);
  void On(const ModelProgress& event);
  void On(const ModelChecked& event);
  void On(const ModelLoaded& event);
  void On(const StoreWritten& event);
  void On(const SessionRequested& event);
  void On(const SessionEnded& event);
  void On(const WatchStarted& event);
  void On(const WatchStopped& event);
  void On(const Tick& event);

  // Messages of a member that is registered on its stream.
  void OnMessage(Member& member, const PrepareAck& ack);
  void OnMessage(Member& member, const PrepareNack& nack);
  void OnMessage(Member& member, const CommitAck& ack);
  void OnMessage(Member& member, const CommitNack& nack);
  void OnMessage(Member& member, const RetireAck& ack);
  void OnMessage(Member& member, const Heartbeat& heartbeat);
  void OnMessage(Member& member, const Leave& leave);
  void OnMessage(Member& member, const Register& request);

  // Takes every step that is due, in the order of the deployments' names: the first one plans into
  // the memory that is free.
  void EvaluateAll();
  // Tells the controller how many sessions its former model has, if it keeps one.
  void CountFormerSessions(const std::string& name, DeploymentController* controller);
  void OnMembersChanged();
  // Remembers what a worker says that its experts served.
  void AddLoad(const Member& member, const LoadReport& report);
  void AddTimes(const Member& member, const Heartbeat& heartbeat);
  // The shape of what `controller` serves with the member's experts; nullopt: it does not.
  [[nodiscard]] static std::optional<LoadShape> ShapeServedBy(
      const Member& member, const DeploymentController& controller);
  // Sends Goodbye to workers that want to leave and that no deployment needs.
  void ReleaseLeavers();
  // Sends RETIRE for epochs of deployments that this coordinator does not have.
  void RetireUnclaimed();
  DeploymentController* Find(const std::string& deployment);
  // The store has the duty, or not.
  void FinishDuty(const Duties::Change& change, const absl::Status& status);
  [[nodiscard]] DeploymentView ViewOf(const DeploymentController& controller, TimePoint now) const;
  [[nodiscard]] WorkerView ViewOf(const Member& member, TimePoint now) const;
  // How a source finds its deployment. To its tenant there are only those whose model it may use.
  static bool Matches(const SessionRequested& event, const DeploymentSpec& spec);
  absl::StatusOr<DeploymentController*> FindFor(const SessionRequested& event);
  absl::StatusOr<SessionGrant> Grant(const SessionRequested& event);
  [[nodiscard]] bool EveryWorkerChecksOpeners() const;

  // The parts below share the options and the outbox, and so come after them.
  const CoordinatorOptions options_;
  Outbox out_;
  Membership members_;
  MemoryLedger memory_;
  SessionTable sessions_;
  CoordinatorTimes times_;
  ControllerContext context_;
  const TimePoint started_at_;
  // The time of the step in progress, or of the last one.
  TimePoint now_;
  WallTime wall_time_;  // of the same
  LoadHistory load_;
  // Maps and not hash maps: equal events must give equal effects, in the same order.
  std::map<std::string, DeploymentController> deployments_;
  Deletions deletions_;
  Duties duties_;
  Applies applies_;
};

}  // namespace switchyard
