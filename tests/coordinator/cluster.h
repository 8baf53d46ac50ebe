// A coordinator with everything around it played by the test: a store in memory, a clock that is
// told, and workers that answer as scripted.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "coordinator/coordinator.h"
#include "coordinator/placement/sticky.h"
#include "coordinator/store/memory_store.h"
#include "core/base/wall_time.h"
#include "core/rng.h"
#include "tests/testing/model_facts.h"

namespace switchyard {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What a scripted worker does with PREPARE and COMMIT.
enum class Answers { kAck, kNack, kNothing };

struct FakeWorker {
  std::string id;
  std::string pool;  // empty: none
  Incarnation incarnation;
  StreamId stream;  // none: away
  CapabilitySet capabilities;
  bool heartbeats = true;
  bool data_thread_turns = true;
  Heartbeat heartbeat;  // the next one
  Answers prepares = Answers::kAck;
  Answers commits = Answers::kAck;
  bool acks_retire = true;
  bool checks_opener = true;
  std::map<EpochKey, ResidentEpoch> resident;
  std::map<EpochKey, GrantKeys> grant_keys;  // of every PREPARE
  std::vector<CoordinatorMessage> inbox;
  std::optional<absl::Status> closed;  // how its last stream was ended by the coordinator

  template <typename T>
  [[nodiscard]] std::vector<T> Got() const {
    std::vector<T> got;
    for (const CoordinatorMessage& message : inbox) {
      if (const T* m = std::get_if<T>(&message)) got.push_back(*m);
    }
    return got;
  }
};

class Cluster {
 public:
  explicit Cluster(CoordinatorOptions options = {}) : options_(std::move(options)) {
    StartCoordinator();
  }

  // The coordinator ends; every stream and watch with it. The store stays.
  void StopCoordinator();
  void StartCoordinator();
  // Of the next coordinator.
  void SetOptions(const CoordinatorOptions& options) { options_ = options; }

  // Workers.
  FakeWorker& Join(const std::string& id, std::int64_t weight_bytes_max = 0,
                   const std::string& pool = "");
  void Register(FakeWorker& worker);        // on a new stream, with what it holds
  void BreakStream(const std::string& id);  // the worker lives on
  void Restart(const std::string& id);      // a new life that holds nothing
  void Say(FakeWorker& worker, WorkerMessage message);
  FakeWorker& worker(const std::string& id) { return workers_.at(id); }

  // Operators and sources.
  absl::StatusOr<DeploymentView> Apply(const DeploymentSpec& spec, bool dry_run = false,
                                       bool hash_weights = false);
  // The answer to the last apply, rollback or deletion, which may have come later.
  [[nodiscard]] const std::optional<absl::StatusOr<DeploymentView>>& answer() const {
    return deployment_;
  }
  absl::StatusOr<DeploymentView> Rollback(std::uint64_t to_revision = 0,
                                          const std::string& name = "demo");
  absl::StatusOr<DeploymentView> Delete(const std::string& name = "demo", bool at_once = false);
  absl::StatusOr<DutyView> SetDuty(const std::string& worker, WorkerDuty duty, bool force = false);
  absl::StatusOr<SessionGrant> Open(const OpenSessionRequest& order, TenantRef tenant = nullptr);
  absl::StatusOr<SessionGrant> OpenDecode();
  WatchId Watch(const WatchRequest& order, TenantRef tenant = nullptr);

  // Ticks with the workers' heartbeats, every 10 ms or as stated.
  void Advance(Duration by, Duration every = milliseconds(10));
  void Step(Event event);

  DeploymentView Deployment(const std::string& name = "demo");
  // The serving epoch; 0: none.
  std::uint64_t Serving(const std::string& name = "demo");
  // Ids of the serving plan's workers, joined by spaces.
  std::string ServingWorkers(const std::string& name = "demo");
  CoordinatorView View() { return coordinator_->View(now); }
  std::vector<JournalEntry> Journal() const { return coordinator_->journal().After(0); }
  std::vector<SessionView> Sessions() const { return coordinator_->Sessions(); }
  LoadView Load(const std::string& deployment) const {
    return coordinator_->Load(deployment, {}, now);
  }
  WorkerView Worker(const std::string& id);
  WorkerState StateOf(const std::string& worker) { return Worker(worker).state; }

  // Knobs and records.
  std::map<std::string, absl::Status> unreachable;  // what dials to these workers come to
  std::vector<DialWorker> held_dials;               // those that are not answered
  bool hold_dials = false;
  std::map<std::string, ModelFacts> models{{"/models/m", testing::MakeFacts()}};
  bool hold_loads = false;  // checkpoints are not read; what would be waits in `held_loads`
  std::vector<LoadModel> held_loads;
  std::vector<RequestId> canceled_loads;
  bool hold_writes = false;   // writes wait in `held`
  absl::Status write_status;  // not OK: writes fail
  std::vector<WriteStore> held;
  // `hold_on`: those that follow from them wait again.
  void ReleaseWrites(bool hold_on = false);
  std::vector<StoreWrite> written;
  std::vector<Report> reports;
  std::map<WatchId, std::vector<PlanUpdate>> news;
  std::map<WatchId, absl::Status> closed_watches;
  absl::Status closed_session;  // the answer to the last CloseSession
  MemoryStore store;
  TimePoint now{};
  WallTime wall_time{milliseconds(1'700'000'000'000)};

 private:
  void Perform(const SendMessage& effect);
  void Perform(const CloseStream& effect);
  void Perform(const DialWorker& effect);
  [[nodiscard]] absl::StatusOr<ModelFacts> FactsAt(const std::string& checkpoint) const;
  void Perform(const CheckModel& effect);
  void Perform(const LoadModel& effect);
  void Perform(const CancelLoad& effect);
  void Perform(const WriteStore& effect);
  void Perform(const AnswerDeployment& effect);
  void Perform(const AnswerDuty& effect) { duty_ = effect.result; }
  void Perform(const AnswerSession& effect);
  void Perform(const AnswerEnd& effect) { closed_session = effect.result; }
  void Perform(const SendPlanUpdate& effect);
  void Perform(const CloseWatch& effect);
  void Perform(const Report& effect) { reports.push_back(effect); }
  void Answer(FakeWorker& worker, const CoordinatorMessage& message);

  CoordinatorOptions options_;
  StickyPlacement placement_;
  SeededRng rng_{42};
  std::unique_ptr<Coordinator> coordinator_;
  std::map<std::string, FakeWorker> workers_;
  std::vector<Event> queue_;
  bool running_ = false;
  std::uint64_t last_id_ = 0;
  std::optional<absl::StatusOr<DeploymentView>> deployment_;
  std::optional<absl::StatusOr<DutyView>> duty_;
  std::optional<absl::StatusOr<SessionGrant>> opened_;
};

}  // namespace switchyard
