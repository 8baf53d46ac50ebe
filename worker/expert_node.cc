#include "worker/expert_node.h"

#include <utility>

#include "worker/weights/weight_source_registry.h"

namespace switchyard {

// The agent's orders, passed on to the expert service.
class ExpertNode::Stager final : public PlanStager {
 public:
  explicit Stager(ExpertService* experts) : experts_(experts) {}
  void StagePlan(const Prepare& prepare, std::function<void(absl::Status)> done) override {
    experts_->StagePlan(prepare, std::move(done));
  }
  void Activate(const EpochKey& key) override { experts_->Activate(key.deployment, key.epoch); }
  void Retire(const EpochKey& key, std::function<void()> unbound) override {
    experts_->Retire(key.deployment, key.epoch, std::move(unbound));
  }
  void Drop(const EpochKey& key) override { experts_->Drop(key.deployment, key.epoch); }
  [[nodiscard]] std::uint64_t Progress() const override { return experts_->Progress(); }

 private:
  ExpertService* experts_;
};

class ExpertNode::Own final : public OwnExperts {
 public:
  explicit Own(DirectExperts* direct) : direct_(direct) {}
  absl::Status Run(const OwnChunk& chunk) override {
    return direct_->Run({.deployment = chunk.deployment,
                         .session = chunk.session,
                         .epoch = chunk.epoch,
                         .hash = chunk.hash,
                         .layer = chunk.layer,
                         .mode = chunk.mode,
                         .rows = chunk.x,
                         .rounded = chunk.rounded,
                         .metadata = chunk.metadata,
                         .out = chunk.out});
  }
  void Release(SessionId session, Epoch epoch) override { direct_->Release(session, epoch); }
  void Close(SessionId session) override { direct_->Close(session); }

 private:
  DirectExperts* direct_;
};

ExpertNode::ExpertNode(ExpertNodeOptions options) : options_(std::move(options)) {
  capabilities_ = options_.device->capabilities();
  capabilities_.transports = options_.transport_names;
  capabilities_.weight_bytes_max = options_.weight_bytes_max;
  ExpertServiceOptions service;
  service.stager.worker_id = options_.worker_id;
  service.stager.incarnation = options_.incarnation;
  service.stager.device = options_.device.get();
  service.stager.open_weights = MakeWeightSource;
  service.stager.weight_bytes_max = options_.weight_bytes_max;
  service.stager.mutant = options_.mutant;
  service.stager.executor.mutant = options_.mutant;
  experts_ =
      std::make_unique<ExpertService>(std::move(service), options_.transport.get(), options_.clock);
  stager_ = std::make_unique<Stager>(experts_.get());
  own_ = std::make_unique<Own>(&experts_->direct());
}

ExpertNode::~ExpertNode() { Stop(Duration::zero()); }

void ExpertNode::Join(AgentChannel* channel, const std::string& endpoint,
                      std::function<void(absl::Status)> finished) {
  AgentOptions agent;
  agent.worker_id = options_.worker_id;
  agent.incarnation = options_.incarnation;
  agent.endpoint = endpoint;
  agent.capabilities = capabilities_;
  agent.mutant = options_.mutant;
  agent_ = std::make_unique<AgentRunner>(std::move(agent),
                                         AgentRunner::Parts{.channel = channel,
                                                            .stager = stager_.get(),
                                                            .clock = options_.clock,
                                                            .rng = options_.rng,
                                                            .logger = options_.logger},
                                         std::move(finished));
}

OwnExperts& ExpertNode::own_experts() { return *own_; }

void ExpertNode::Leave() {
  if (agent_ != nullptr) agent_->Leave();
}

AgentView ExpertNode::agent_view() const {
  return agent_ == nullptr ? AgentView{} : agent_->View();
}

void ExpertNode::Stop(Duration drain) {
  agent_.reset();
  experts_->Stop(drain);
}

}  // namespace switchyard
