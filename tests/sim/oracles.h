// What must never be seen, whatever fails: I1-I10 of the epoch protocol, looked at from outside, at
// the borders of the processes. Each oracle keeps its own account of the truth.
//
//   I1, I10  one plan and one attempt for each epoch number, ever; served epochs grow
//   I2       PREPARE after the number, COMMIT after the plan, news after "serves" is on disk
//   I3       a worker activates the plan that COMMIT's hash names, staged whole, and binds no other
//   I5       a committed plan is valid, and every worker of it has staged it
//   I6       nobody is told of an epoch before all of its workers have it; the serving epoch is
//            not retired; nobody is asked to hold three; nothing is freed under a binding
//   I4, I9   every sum is that of one plan and of the weights that it names (source_node.h)
//   credits  a pair of slots carries one chunk until its reply has come (sim_transport.h)
//   I8       a plan goes to the very processes that it names; no session on a worker's former life
//   also     no epoch without a reason; nobody is a member who has been silent for a lease
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "coordinator/spec/options.h"
#include "coordinator/store/memory_store.h"
#include "coordinator/view.h"
#include "core/base/clock.h"
#include "core/control_messages.h"
#include "core/session_messages.h"
#include "tests/sim/scheduler.h"

namespace switchyard::sim {

class Oracles {
 public:
  Oracles(const Scheduler* scheduler, const MemoryStore* disk, CoordinatorOptions options)
      : scheduler_(scheduler), disk_(disk), options_(options) {}

  // Empty while all is well; else the first thing that went wrong.
  [[nodiscard]] const std::string& violation() const { return violation_; }
  void Fail(const std::string& what);

  // At the coordinator's border. `peer` is the process at the other end of the stream.
  struct Peer {
    std::string id;
    Incarnation incarnation;
  };
  void CoordinatorSends(const Peer& peer, const CoordinatorMessage& message);
  void CoordinatorHears(const Peer& peer, const WorkerMessage& message);
  void CoordinatorEndsStream(const Peer& peer) { told_.erase(peer.incarnation); }
  void CoordinatorStarts(TimePoint now);
  void CoordinatorStalled(TimePoint until) { listening_since_ = std::max(listening_since_, until); }
  void CoordinatorGrants(const SessionGrant& grant);
  void CoordinatorAnnounces(const PlanUpdate& news);
  void CoordinatorShows(const CoordinatorView& view);
  void DiskTakes(const StoreWrite& write);

  // At a worker's border.
  void WorkerStages(const Peer& worker, const EpochKey& key, const PlanHash& real_hash);
  void WorkerHearsCommit(const Peer& worker, const Commit& commit);
  void WorkerActivates(const Peer& worker, const EpochKey& key, const PlanHash& real_hash,
                       bool staged_whole);
  void WorkerBinds(const Peer& worker, const EpochKey& key, const PlanHash& hash);
  void WorkerFrees(const Peer& worker, const EpochKey& key, std::size_t bindings);
  void WorkerHolds(const Peer& worker, const std::string& deployment, std::size_t epochs);

 private:
  struct Attempt {
    PlanHash hash;
    std::uint64_t nonce = 0;
  };
  using StagedKey = std::tuple<Incarnation, EpochKey, PlanHash>;

  void Check(bool holds, const std::string& what) {
    if (!holds) Fail(what);
  }
  void CheckPrepare(const Peer& peer, const Prepare& prepare);
  void CheckNeeded(const Plan& plan);
  void CheckAllActive(const Plan& plan, const PlanHash& hash, const std::string& who);
  [[nodiscard]] StoredDeployment Stored(const std::string& deployment) const;
  [[nodiscard]] const StoredPlan* StoredPlanOf(const StoredDeployment& stored, Epoch epoch) const;

  const Scheduler* scheduler_;
  const MemoryStore* disk_;
  const CoordinatorOptions options_;
  std::string violation_;

  std::map<EpochKey, Attempt> attempts_;
  std::map<std::string, Epoch> served_;  // highest announced, by deployment
  std::set<StagedKey> staged_;
  std::set<StagedKey> activated_;
  std::map<std::pair<Incarnation, EpochKey>, PlanHash> commit_heard_;
  // Of each process with a registered stream: epochs that it may hold as far as the coordinator was
  // told.
  std::map<Incarnation, std::map<EpochKey, bool>> told_;  // true: committed
  std::map<std::string, Incarnation> registered_;         // the life that registered last
  std::map<std::string, TimePoint> heard_;
  TimePoint listening_since_{};
};

}  // namespace switchyard::sim
