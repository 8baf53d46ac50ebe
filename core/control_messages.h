// The messages of the control stream between the coordinator and a worker's agent.
//
//   worker                                   coordinator
//     Register ------------------------------>  membership, lease
//                <------------------------------ Registered
//     Heartbeat (every lease_ttl / 4) -------->
//                <------------------------------ Prepare(epoch, nonce, plan, hashes)
//     PrepareAck | PrepareNack --------------->  all ACK: durable, then
//                <------------------------------ Commit(epoch, hash)   or Abort(epoch)
//     CommitAck | CommitNack ----------------->  all ACK: sources switch
//                <------------------------------ Retire(epoch)
//     RetireAck (nothing is bound to it now) ->
//     Leave (requests to be left out) -------->  a plan without it; then Goodbye
//                <------------------------------ Goodbye
//
// Epochs are per deployment; at most two of one deployment are resident on a worker. Every message
// of a stream belongs to the incarnation that registered on it. Plain data; services/ converts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

#include "core/base/clock.h"
#include "core/capability.h"
#include "core/grant_signature.h"
#include "core/ids.h"
#include "core/load_report.h"
#include "core/plan.h"
#include "core/trace_settings.h"
#include "core/weight_manifest.h"
#include "core/work_times.h"

namespace switchyard {

// One epoch of one deployment.
struct EpochKey {
  std::string deployment;
  Epoch epoch;
  friend auto operator<=>(const EpochKey&, const EpochKey&) = default;
};

// An epoch that a worker holds when it registers: it keeps serving through a broken stream or a
// restart of the coordinator. Not committed: it is staged only, and a new attempt may reuse its
// experts.
struct ResidentEpoch {
  std::string deployment;
  Epoch epoch;
  PlanHash hash;
  bool committed = false;
  friend bool operator==(const ResidentEpoch&, const ResidentEpoch&) = default;
};

// The first message of a stream, and again after every reconnect. `resident` lets a coordinator
// that restarted adopt what still serves.
struct Register {
  std::string worker_id;
  Incarnation incarnation;
  std::string endpoint;  // its ExpertService, "host:port"
  CapabilitySet capabilities;
  std::vector<ResidentEpoch> resident;
  // The keys of the committed epochs among them. A coordinator whose store was lost has no other
  // way to know with which key the sessions were signed that are open.
  std::vector<DeploymentKeys> grant_keys = {};
  // The same in each Register of a process, which is how a coordinator tells it from a stranger
  // that repeats its incarnation. Never logged or shown.
  LifeSecret secret = {};
  std::string pool = {};       // which deployments may name; empty: none
  bool checks_opener = false;  // it takes grants that name who opened the session
  std::string release = {};    // of its program, "0.1.0"; for people, nothing compares it
  friend bool operator==(const Register&, const Register&) = default;
};
// How far a worker is with an epoch that it prepares. Counts the experts that it has to load; those
// that the epoch shares with a resident one are not among them.
struct StagingReport {
  std::string deployment;
  Epoch epoch;
  std::int32_t experts_done = 0;
  std::int32_t experts = 0;
  std::int64_t bytes_done = 0;  // as held in memory
  std::int64_t bytes = 0;
  friend bool operator==(const StagingReport&, const StagingReport&) = default;
};
// Above any honest list: a worker loads one epoch at a time and holds two of a deployment.
inline constexpr std::size_t kStagingReportsMax = 64;

// Renews the lease. A `progress` that stands still while the lease is renewed shows a data thread
// that is stuck, and a `batch_age` that only grows shows a device that is.
struct Heartbeat {
  std::uint64_t progress = 0;  // grows with every turn of the data thread
  Duration batch_age{};        // of the oldest batch that runs; zero: none runs
  // The epoch that is being loaded, and those that wait for their commit.
  std::vector<StagingReport> staging = {};
  // The rows that its experts have served since the last report; at most once a second.
  std::vector<LoadReport> load = {};
  // How long steps have taken since then, a kind of work once, over all deployments. Empty: there
  // were none, or the worker is of an older build.
  std::vector<WorkTimes> times = {};
  friend bool operator==(const Heartbeat&, const Heartbeat&) = default;
};
// Everything of the epoch is loaded, verified and allocated: a commit cannot fail for want of
// memory.
struct PrepareAck {
  std::string deployment;
  Epoch epoch;
  std::uint64_t nonce = 0;
  PlanHash hash;
  friend bool operator==(const PrepareAck&, const PrepareAck&) = default;
};
// The epoch cannot be served here; nothing of it is kept. The former epoch goes on.
struct PrepareNack {
  std::string deployment;
  Epoch epoch;
  std::uint64_t nonce = 0;
  absl::Status error;
  friend bool operator==(const PrepareNack&, const PrepareNack&) = default;
};
// Sources may bind the epoch on this worker from now on.
struct CommitAck {
  std::string deployment;
  Epoch epoch;
  PlanHash hash;
  friend bool operator==(const CommitAck&, const CommitAck&) = default;
};
// The epoch to commit is not staged here, as after a restart of the worker.
struct CommitNack {
  std::string deployment;
  Epoch epoch;
  absl::Status error;
  friend bool operator==(const CommitNack&, const CommitNack&) = default;
};
// No source binds the epoch any more, and its weights may be freed.
struct RetireAck {
  std::string deployment;
  Epoch epoch;
  friend bool operator==(const RetireAck&, const RetireAck&) = default;
};
// The worker wants to end: it is left out of the next plans and keeps serving until Goodbye.
struct Leave {
  friend bool operator==(const Leave&, const Leave&) = default;
};

// Everything that a worker sends.
using WorkerMessage = std::variant<Register, Heartbeat, PrepareAck, PrepareNack, CommitAck,
                                   CommitNack, RetireAck, Leave>;

// Grants a lease: a worker that is silent for so long is planned out.
struct Registered {
  Duration lease_ttl{};
  TraceSettings tracing = {};  // of the steps of its sessions
  friend bool operator==(const Registered&, const Registered&) = default;
};
// The first phase of a switch of epochs. Answers to another nonce are of an attempt that was given
// up.
struct Prepare {
  std::uint64_t nonce = 0;  // of this attempt; its answer repeats it
  Plan plan;
  PlanHash hash;                    // must equal HashOf(plan)
  std::string checkpoint;           // directory of the model, as the workers see it
  std::vector<TensorHash> tensors;  // of the experts that the plan gives to this worker
  // Those of the deployment. No part of the plan: sources and operators see the plan, and `hash`
  // does not cover them.
  GrantKeys grant_keys = {};
  friend bool operator==(const Prepare&, const Prepare&) = default;
};
// The second phase, sent only after every worker of the plan has acknowledged and the coordinator
// has stored the decision.
struct Commit {
  std::string deployment;
  Epoch epoch;
  PlanHash hash;
  friend bool operator==(const Commit&, const Commit&) = default;
};
// Drops a prepared epoch. No answer.
struct Abort {
  std::string deployment;
  Epoch epoch;
  friend bool operator==(const Abort&, const Abort&) = default;
};
// Ends an epoch for new bindings. Sources that bind it go on until they have switched and their
// steps have ended. Repeated with `within` when its memory is needed sooner.
struct Retire {
  std::string deployment;
  Epoch epoch;
  Duration within{};  // bindings end after it; 0: after the deadlines of their steps
  friend bool operator==(const Retire&, const Retire&) = default;
};
// No plan names the worker any more; it may end its process.
struct Goodbye {
  friend bool operator==(const Goodbye&, const Goodbye&) = default;
};

// Everything that the coordinator sends.
using CoordinatorMessage = std::variant<Registered, Prepare, Commit, Abort, Retire, Goodbye>;

}  // namespace switchyard
