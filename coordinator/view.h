// A snapshot of what the coordinator knows, for list, describe and explain.
//
// Plain data, copyable; plans are shared and not copied. It is taken between two steps, so that its
// parts agree with each other, and it does not change afterwards.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "coordinator/history/revisions.h"
#include "coordinator/progress/coordinator_times.h"
#include "coordinator/progress/progress_view.h"
#include "coordinator/spec/deployment.h"
#include "coordinator/spec/deployment_record.h"
#include "core/base/clock.h"
#include "core/capability.h"
#include "core/control_messages.h"
#include "core/ids.h"
#include "core/session_messages.h"

namespace switchyard {

enum class WorkerState : std::uint8_t {
  // Its stream is open.
  kLive = 0,
  // Its stream has ended; it has stream_grace to reconnect.
  kDisconnected = 1,
  // It requested to leave.
  kLeaving = 2,
  // Its lease is renewed, but its work does not move.
  kStuck = 3,
  // It does not answer at the endpoint that it advertises.
  kUnreachable = 4,
  // Only plans that it serves in use it (WorkerDuty::kCordoned).
  kCordoned = 5,
  // Plans are made without it (WorkerDuty::kDraining), and it still holds an epoch.
  kDraining = 6,
  // It was draining and holds nothing any more: its process may end.
  kDrained = 7,
};

// A worker that is a member. One that is gone is not listed, also while its plan still serves.
struct WorkerView {
  std::string id;
  Incarnation incarnation;
  std::string endpoint;
  WorkerState state = WorkerState::kLive;
  CapabilitySet capabilities;
  Duration lease_left{};
  std::uint64_t progress = 0;  // from its last heartbeat
  // Physical experts that serving plans place on it.
  std::int32_t experts = 0;
  // As far as the coordinator knows.
  std::vector<ResidentEpoch> resident;
  std::string problem;  // why no plan uses it; empty: nothing is wrong
  // The epochs that it loads or has loaded and does not serve yet.
  std::vector<StagingView> staging = {};
  std::string pool = {};     // empty: none
  std::string release = {};  // of its program; empty: it does not say
};

enum class DeploymentState : std::uint8_t {
  // No epoch has served so far.
  kPending = 0,
  // Every worker of the serving epoch is present.
  kServing = 1,
  // The serving epoch has lost a worker, and no other epoch has replaced it.
  kUnavailable = 2,
  // It does not exist so far: its first apply reads the checkpoint. The view has the spec only.
  kReading = 3,
  // An operator has deleted it: it serves the sessions that it has until they close, and then waits
  // until its workers are free.
  kDeleting = 4,
  // No epoch serves, and no workers, or none like those that there are, could serve its record.
  kRefused = 5,
};

// The state of a revision.
enum class RevisionState : std::uint8_t {
  // It was applied last, and does not serve so far.
  kPending = 0,
  kServing = 1,
  // No workers, or none like those that there are, could serve it.
  kRefused = 2,
  // It has served.
  kFormer = 3,
  // Another one was applied before it served.
  kUnused = 4,
};

// The model of the plan that serves.
struct ServedModel {
  std::string name;
  // Empty: not known, since the coordinator restarted while another model was coming.
  std::string checkpoint;
  MoeShape shape;
  std::vector<LayerId> layers;
  Sha256Digest manifest;
};

// A deployment as applied, and the plan that serves, which may be of an older spec.
struct DeploymentView {
  // With every default filled in.
  DeploymentSpec spec;
  MoeShape shape;
  std::vector<LayerId> layers;
  std::vector<LayerStorage> storage;  // of each of `layers`
  Sha256Digest manifest;
  DeploymentState state = DeploymentState::kPending;
  // Null before the first epoch.
  std::shared_ptr<const PlanUpdate> serving;
  // Set with `serving`; not that of `spec` between an apply and the switch.
  std::optional<ServedModel> served = {};
  // `serving` serves and is of `spec`. False from an apply until the switch.
  bool current = false;
  // The revision of `spec`; 0: it has none, as in a dry run.
  std::uint64_t revision = 0;
  // No workers, or none like those that there are, could serve it; `problem` says why.
  bool refused = false;
  // The revision of `serving`; 0: none, or not known.
  std::uint64_t served_revision = 0;
  std::shared_ptr<const Revisions::List> revisions = nullptr;  // those that are kept; null: none
  // Being prepared or committed; 0: none.
  Epoch pending;
  // How far each of its workers is.
  std::vector<StagingView> staging = {};
  // The checkpoint that an apply reads.
  std::optional<ReadingView> reading = {};
  absl::Status apply_failure = {};  // of the last apply, after it was answered
  // One sentence: what it is doing or waiting for.
  std::string activity;
  // Why it does not serve, or why the last change failed.
  absl::Status problem;
  // Workers that the plan does not use: "w3: why"
  std::vector<std::string> left_out;
  // About the last proposal's configs, the first of each id.
  std::vector<Warning> warnings = {};
  std::int32_t sessions = 0;
  ChangeCounts changes = {};
  // Dry run only: the possible plan; null: none is possible.
  std::shared_ptr<const Plan> proposed;
};

// The part of a view that comes from the record and from the plan that serves (null: none).
// `holds`: every worker of it is present. `served_checkpoint` counts where the record names another
// model.
DeploymentView ViewOf(const DeploymentRecord& record, std::shared_ptr<const PlanUpdate> serving,
                      bool holds, const std::string& served_checkpoint);
// `revision` is one of the deployment's.
RevisionState StateOf(const Revision& revision, const DeploymentView& deployment);
// Why it is refused; empty: it is not.
std::string RefusalOf(const Revision& revision, const DeploymentView& deployment);
// "model b is coming: ", or empty while the model that serves is that of the spec.
std::string ComingText(const DeploymentView& view);

// A session that is open.
struct SessionView {
  static constexpr std::size_t kNameDigits = 8;
  // The first digits of its id. The whole id would allow a stranger to close the session.
  std::string name;
  std::string deployment;
  Phase phase = Phase::kMixed;
  // These two are not known of a session that was opened before the coordinator restarted.
  std::optional<DispatchMode> mode = {};
  std::optional<DeviceKind> source = {};
  // The address from which its source watches the plan; empty: it does not now.
  std::string peer;
  Epoch opened;    // the epoch on which it was opened, or the first one that is known of it
  Epoch epoch;     // the newest one that was sent to it
  Duration age{};  // since it was opened, or since the coordinator knows it
  // How rows travel, p2p or collective, not known as the two above; and why, for people.
  std::optional<BindingChoice> binding = {};
  std::string binding_reason = {};
  GroupRequest group = {};  // its place, if collective
  std::int32_t ranks = 0;   // of the group
};

// The answer to a request for another duty.
struct DutyView {
  // Unset: the worker is not a member now.
  std::optional<WorkerView> worker;
  // "deployment local: 1 worker is left, fewer than min_workers, 2"
  std::vector<std::string> warnings;
};

struct CoordinatorView {
  std::vector<WorkerView> workers;          // ascending by id
  std::vector<DeploymentView> deployments;  // ascending by name
  CoordinatorTimes times = {};
};

}  // namespace switchyard
