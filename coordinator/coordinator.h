// The coordinator, sans I/O: events in, effects out.
//
//   Step(event, now): the event changes what is known (members, acks, requests), then every
//   deployment takes the steps that are due; all that is to be done comes back as effects.
//
// It has no threads, no clock, no disk and no network; equal events give equal effects, so that the
// driver, the tests and the simulation run the same coordinator. Not thread-safe.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/deployment_controller.h"
#include "coordinator/events.h"
#include "coordinator/membership.h"
#include "coordinator/memory_ledger.h"
#include "coordinator/options.h"
#include "coordinator/placement/placement_policy.h"
#include "coordinator/recovery.h"
#include "coordinator/session_table.h"
#include "coordinator/view.h"
#include "core/base/clock.h"
#include "core/rng.h"

namespace switchyard {

class Coordinator {
 public:
  // `stored` is what the store holds; `placement` and `rng` outlive the coordinator.
  Coordinator(CoordinatorOptions options, const PlacementPolicy* placement, Rng* rng,
              std::vector<RecoveredDeployment> stored, TimePoint now);
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // `now` never goes back.
  std::vector<Effect> Step(const Event& event, TimePoint now);

  [[nodiscard]] CoordinatorView View(TimePoint now) const;

 private:
  // An apply on its way: first its checkpoint is read, then its record is written.
  struct PendingApply {
    DeploymentSpec spec;
    bool dry_run = false;
    DeploymentRecord record;  // once read
    WriteId write;            // once it is being written
  };

  void On(const StreamOpened& event);
  void On(const StreamMessage& event);
  void On(const StreamClosed& event);
  void On(const ApplyRequested& event);
  void On(const ModelLoaded& event);
  void On(const StoreWritten& event);
  void On(const SessionRequested& event);
  void On(const SessionEnded& event);
  void On(const WatchStarted& event);
  void On(const WatchStopped& event);
  void On(const Tick& event);

  void OnMessage(Member& member, const PrepareAck& ack);
  void OnMessage(Member& member, const PrepareNack& nack);
  void OnMessage(Member& member, const CommitAck& ack);
  void OnMessage(Member& member, const CommitNack& nack);
  void OnMessage(Member& member, const RetireAck& ack);
  void OnMessage(Member& member, const Heartbeat& heartbeat);
  void OnMessage(Member& member, const Leave& leave);
  void OnMessage(Member& member, const Register& request);

  void EvaluateAll();
  void MembersChanged();
  void ReleaseLeavers();
  DeploymentController* Find(const std::string& deployment);
  [[nodiscard]] absl::Status CheckApply(const DeploymentSpec& spec) const;
  void FinishApply(RequestId request, const PendingApply& apply);
  [[nodiscard]] DeploymentView ViewOf(const DeploymentController& controller) const;
  [[nodiscard]] DeploymentView Preview(const DeploymentRecord& record) const;
  static bool Asks(const OpenSessionRequest& order, const DeploymentSpec& spec);
  absl::StatusOr<DeploymentController*> FindFor(const OpenSessionRequest& order);
  absl::StatusOr<SessionGrant> Grant(const OpenSessionRequest& order);

  const CoordinatorOptions options_;
  Outbox out_;
  Membership members_;
  MemoryLedger memory_;
  SessionTable sessions_;
  ControllerContext context_;
  TimePoint now_;
  std::map<std::string, DeploymentController> deployments_;
  std::map<RequestId, PendingApply> applies_;
};

}  // namespace switchyard
