// A worker's process: the real Agent, EpochStager and ExpertEngine, with hashing experts, and the
// streams of the sources that are attached.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "coordinator/threads/stream_ids.h"
#include "core/plan.h"
#include "tests/sim/network.h"
#include "tests/sim/oracles.h"
#include "tests/sim/sim_transport.h"
#include "worker/agent/agent.h"
#include "worker/expert/epoch_stager.h"
#include "worker/expert/expert_engine.h"

namespace switchyard::sim {

class World;

// At the source, for one attachment.
struct AttachAnswers {
  std::function<void(const AttachGrant&)> attached;
  std::function<void(Epoch, const absl::Status&)> bound;
};

class WorkerNode {
 public:
  WorkerNode(World* world, std::string name, std::int64_t weight_bytes_max);

  [[nodiscard]] NodeId id() const { return id_; }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool alive() const { return agent_ != nullptr; }
  [[nodiscard]] const Incarnation& incarnation() const { return incarnation_; }
  void Start();  // a new life that holds nothing
  void Crash(bool silent);
  void Pause(Duration for_how_long);
  void Leave();
  [[nodiscard]] bool leaving() const { return leaving_; }

  // Called at this node, by what a source says on its stream.
  void Attach(const std::shared_ptr<Wire>& link, const AttachRequest& order,
              const AttachAnswers& answers);
  void Bind(const std::shared_ptr<Wire>& link, const BindRequest& order);
  void Release(const std::shared_ptr<Wire>& link, const ReleaseRequest& order);

  // At rest: what it holds.
  [[nodiscard]] std::vector<ResidentEpoch> Resident() const;
  [[nodiscard]] bool Serves(const EpochKey& key, const PlanHash& hash) const;

 private:
  struct HeldEpoch {
    Prepare prepare;
    StagedEpoch staged;  // as the stager made it; empty until then
    bool active = false;
  };
  // A source's attachment, as this worker ought to see it.
  struct Attached {
    std::shared_ptr<Wire> link;
    AttachAnswers answers;
    std::string deployment;
    std::set<EpochKey> bound;
  };

  void Step(const AgentEvent& event);
  void Perform(const DialChannel& effect);
  void Perform(const SendToCoordinator& effect);
  void Perform(const HangUpChannel& effect);
  void Perform(const StageEpoch& effect);
  void Perform(const ActivateEpoch& effect);
  void Perform(const RetireEpoch& effect);
  void Perform(const ShortenRetire& effect);
  void Perform(const DropEpoch& effect);
  void Perform(const UseTracing& /*effect*/) {}
  void Perform(const AgentFinished& effect);
  void Perform(const AgentReport& effect);
  void ScheduleTick();
  void FinishStaging(const EpochKey& key);
  absl::Status Stage(HeldEpoch* held);
  void MakeEngine();
  void SchedulePoll();
  void Poll();
  [[nodiscard]] Attached* Find(const std::shared_ptr<Wire>& link, AttachmentId* number);
  [[nodiscard]] Oracles::Peer Me() const { return {name_, incarnation_}; }

  World* world_;
  NodeId id_;
  const std::string name_;
  const std::int64_t weight_bytes_max_;
  Incarnation incarnation_;
  bool leaving_ = false;
  std::unique_ptr<Agent> agent_;
  std::map<EpochKey, HeldEpoch> epochs_;
  std::unique_ptr<SimTransport> transport_;
  std::unique_ptr<ExpertEngine> engine_;
  std::map<AttachmentId, Attached> attached_;
  bool poll_asked_ = false;
  DialId dial_;
  std::shared_ptr<Wire> link_;
  std::optional<StreamId> stream_;  // the coordinator's name for link_
  std::uint64_t tick_ = 0;          // the tick that counts
};

}  // namespace switchyard::sim
