// A snapshot of what the coordinator knows, for list, describe and explain. Plain data, copyable;
// plans are shared and not copied.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "coordinator/deployment.h"
#include "core/base/clock.h"
#include "core/capability.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/session_messages.h"

namespace switchyard {

enum class WorkerState : std::uint8_t {
  kLive = 0,          // its stream is open
  kDisconnected = 1,  // its stream has ended; it has stream_grace to reconnect
  kLeaving = 2,       // it asked to leave
};
absl::string_view WorkerStateName(WorkerState state);  // "live", "disconnected", "leaving"

// A worker that is a member. One that is gone is not listed, also while its plan still serves.
struct WorkerView {
  std::string id;
  Incarnation incarnation;
  std::string endpoint;
  WorkerState state = WorkerState::kLive;
  CapabilitySet capabilities;
  Duration lease_left{};
  std::uint64_t progress = 0;           // from its last heartbeat
  std::int32_t experts = 0;             // physical experts that serving plans place on it
  std::vector<ResidentEpoch> resident;  // as far as the coordinator knows
};

enum class DeploymentState : std::uint8_t {
  kPending = 0,      // no epoch has served so far
  kServing = 1,      // every worker of the serving epoch is present
  kUnavailable = 2,  // the serving epoch has lost a worker, and no other epoch has replaced it
};
absl::string_view DeploymentStateName(DeploymentState state);  // "pending", "serving", ...

// A deployment as applied, and the plan that serves, which may be of an older spec.
struct DeploymentView {
  DeploymentSpec spec;  // with every default filled in
  MoeShape shape;
  std::vector<LayerId> layers;
  std::vector<LayerStorage> storage;  // of each of `layers`
  Sha256Digest manifest;
  DeploymentState state = DeploymentState::kPending;
  std::shared_ptr<const PlanUpdate> serving;  // null before the first epoch
  Epoch pending;                              // being prepared or committed; 0: none
  std::string activity;                       // what it is doing or waiting for, one sentence
  absl::Status problem;                // why it does not serve, or why the last change failed
  std::vector<std::string> left_out;   // workers that the plan does not use: "w3: why"
  std::vector<Warning> warnings = {};  // about the last draft's configs, the first of each id
  std::int32_t sessions = 0;
  std::shared_ptr<const Plan> drafted;  // dry run only: the possible plan; null: none is possible
};

struct CoordinatorView {
  std::vector<WorkerView> workers;          // ascending by id
  std::vector<DeploymentView> deployments;  // ascending by name
};

}  // namespace switchyard
