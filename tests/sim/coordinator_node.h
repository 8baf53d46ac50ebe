// The coordinator's process: the real Coordinator with a disk that survives it.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "coordinator/coordinator.h"
#include "coordinator/placement/sticky.h"
#include "tests/sim/network.h"
#include "tests/sim/oracles.h"

namespace switchyard::sim {

class World;

class CoordinatorNode {
 public:
  explicit CoordinatorNode(World* world);

  [[nodiscard]] NodeId id() const { return id_; }
  [[nodiscard]] bool alive() const { return coordinator_ != nullptr; }
  void Start();
  void Crash(bool silent);
  void Pause(Duration for_how_long);
  // Of the life that runs; nothing while there is none.
  [[nodiscard]] CoordinatorView View() const;
  void Apply(const DeploymentSpec& spec);
  void Delete(const std::string& deployment, bool at_once);
  void SetDuty(const std::string& worker, WorkerDuty duty, bool force);

  // Called at this node, by what comes over a link.
  StreamId OpenStream(const std::shared_ptr<Wire>& link,
                      std::function<void(const CoordinatorMessage&)> receive);
  void Hear(StreamId stream, const WorkerMessage& message);
  void OpenSession(const OpenSessionRequest& order,
                   std::function<void(const absl::StatusOr<SessionGrant>&)> answer);
  void CloseSession(SessionId session);
  WatchId Watch(const std::shared_ptr<Wire>& link, const WatchRequest& order,
                std::function<void(std::shared_ptr<const PlanUpdate>)> news);

 private:
  struct Stream {
    std::shared_ptr<Wire> link;
    std::function<void(const CoordinatorMessage&)> receive;  // at the worker
    std::optional<Register> request;                         // the last that came
    std::optional<Oracles::Peer> peer;                       // once that was accepted
  };
  struct WatchEntry {
    std::shared_ptr<Wire> link;
    std::function<void(std::shared_ptr<const PlanUpdate>)> news;
  };

  void Step(const Event& event);
  void Tick();
  void Perform(const SendMessage& effect);
  void Perform(const switchyard::CloseStream& effect);
  void Perform(const DialWorker& effect);
  void Perform(const CheckModel& effect);
  void Perform(const LoadModel& effect);
  void Perform(const CancelLoad& effect);
  void Perform(const WriteStore& effect);
  void Perform(const AnswerDeployment& /*effect*/) {}
  void Perform(const AnswerDuty& /*effect*/) {}
  void Perform(const AnswerSession& effect);
  void Perform(const AnswerEnd& /*effect*/) {}
  void Perform(const SendPlanUpdate& effect);
  void Perform(const CloseWatch& effect);
  void Perform(const Report& effect);
  absl::Status WriteFirst();
  void Forget(StreamId stream);
  [[nodiscard]] CoordinatorMessage OnTheWay(const CoordinatorMessage& message);

  World* world_;
  NodeId id_;
  StickyPlacement placement_;
  std::unique_ptr<Coordinator> coordinator_;
  std::map<StreamId, Stream> streams_;
  std::map<WatchId, WatchEntry> watches_;
  std::map<RequestId, std::function<void(const absl::StatusOr<SessionGrant>&)>> opens_;
  std::deque<StoreWrite> writing_;  // the disk does one thing at a time
  TimePoint write_done_{};
  std::uint64_t last_id_ = 0;
  int ticks_ = 0;
};

}  // namespace switchyard::sim
