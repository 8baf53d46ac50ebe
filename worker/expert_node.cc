#include "worker/expert_node.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "worker/collective/expert/work_meter.h"
#include "worker/weights/weight_source_registry.h"

namespace switchyard {

// Passes the agent's commands on to the expert service.
class ExpertNode::Stager final : public PlanStager {
 public:
  Stager(ExpertNode* node, std::function<void(const TraceSettings&)> on_tracing)
      : experts_(node->experts_.get()),
        groups_(node->groups_.get()),
        clock_(node->options_.clock),
        on_tracing_(std::move(on_tracing)) {}
  void StagePlan(const Prepare& prepare, std::function<void(absl::Status)> done) override {
    experts_->StagePlan(prepare, std::move(done));
  }
  void Activate(const EpochKey& key) override { experts_->Activate(key.deployment, key.epoch); }
  void Retire(const EpochKey& key, std::function<void()> unbound) override {
    experts_->Retire(key.deployment, key.epoch, std::move(unbound));
  }
  void ShortenRetire(const EpochKey& key, Duration within) override {
    experts_->ShortenRetire(key.deployment, key.epoch, within);
  }
  void Drop(const EpochKey& key) override { experts_->Drop(key.deployment, key.epoch); }
  void UseTracing(const TraceSettings& settings) override {
    if (on_tracing_) on_tracing_(settings);
  }
  [[nodiscard]] bool IsInUse() const override { return experts_->IsInUse(); }
  [[nodiscard]] Heartbeat MakeHeartbeat() const override {
    Heartbeat heartbeat = experts_->MakeHeartbeat();
    // Both take one time, so that rows and times come in the same heartbeats.
    const TimePoint now = clock_->Now();
    heartbeat.load = experts_->TakeLoad(now);
    heartbeat.times = meter_.Take(TotalWorkTimes(experts_->times(), &groups_->counts()), now);
    return heartbeat;
  }

 private:
  ExpertService* const experts_;
  GroupService* const groups_;
  Clock* const clock_;
  mutable WorkMeter meter_;
  const std::function<void(const TraceSettings&)> on_tracing_;
};

namespace {

// The part of `proven` that the worker offers, in the same order.
absl::StatusOr<std::vector<DispatchDtype>> OfferedOf(const std::vector<DispatchDtype>& proven,
                                                     const std::vector<DispatchDtype>& wanted) {
  const auto has = [](const std::vector<DispatchDtype>& all, DispatchDtype dtype) {
    return std::find(all.begin(), all.end(), dtype) != all.end();
  };
  if (wanted.empty()) return proven;
  const auto names = [](const std::vector<DispatchDtype>& dtypes) {
    return absl::StrJoin(dtypes, ", ", [](std::string* out, DispatchDtype dtype) {
      absl::StrAppend(out, DispatchDtypeName(dtype));
    });
  };
  if (!has(wanted, DispatchDtype::kBf16)) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("wire dtypes ", names(wanted), " lack bf16, which every worker ",
                                  "has to take; add it"));
  }
  for (const DispatchDtype dtype : wanted) {
    if (has(proven, dtype)) continue;
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kUnsupported,
                     absl::StrCat("this worker's device has not proven that it takes ",
                                  DispatchDtypeName(dtype), " rows; it takes ", names(proven)),
                     {{"want", std::string(DispatchDtypeName(dtype))}, {"have", names(proven)}});
  }
  std::vector<DispatchDtype> offered;
  for (const DispatchDtype dtype : proven) {
    if (has(wanted, dtype)) offered.push_back(dtype);
  }
  return offered;
}

}  // namespace

ExpertNode::ExpertNode(ExpertNodeOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<ExpertNode>> ExpertNode::Create(ExpertNodeOptions options) {
  std::unique_ptr<ExpertNode> node(new ExpertNode(std::move(options)));
  const ExpertNodeOptions& own = node->options_;
  node->capabilities_ = own.device->capabilities();
  // The device does not know how rows arrive, nor how much memory the operator grants.
  node->capabilities_.transports = own.transport_names;
  node->capabilities_.transport_library = own.transport->library();
  node->capabilities_.weight_bytes_max = own.weight_bytes_max;
  SY_ASSIGN_OR_RETURN(node->capabilities_.wire_dtypes,
                      OfferedOf(node->capabilities_.wire_dtypes, own.wire_dtypes));
  ExpertServiceOptions service;
  service.stager.worker_id = own.worker_id;
  service.stager.incarnation = own.incarnation;
  service.stager.device = own.device.get();
  service.stager.open_weights = MakeWeightSource;
  service.stager.weight_bytes_max = own.weight_bytes_max;
  service.stager.load_threads = own.load_threads;
  service.engine.on_device_fault = own.on_device_fault;
  if (own.tracer != nullptr) service.engine.tracer = own.tracer;
  SY_ASSIGN_OR_RETURN(node->experts_,
                      ExpertService::Create(std::move(service), own.transport.get(), own.clock));
  node->groups_ = GroupService::Make({.worker_id = own.worker_id,
                                      .device = own.device,
                                      .experts = &node->experts_->direct(),
                                      .rng = own.rng,
                                      .ring_dir = own.ring_dir});
  node->stager_ = std::make_unique<Stager>(node.get(), own.on_tracing);
  return node;
}

ExpertNode::~ExpertNode() { Stop(Duration::zero()); }

void ExpertNode::Join(AgentChannel* channel, const std::string& endpoint,
                      std::function<void(absl::Status)> finished) {
  AgentOptions agent;
  agent.worker_id = options_.worker_id;
  agent.pool = options_.pool;
  agent.release = options_.release;
  agent.incarnation = options_.incarnation;
  agent.secret = options_.rng->NextId<LifeSecret>();
  agent.endpoint = endpoint;
  agent.capabilities = capabilities_;
  agent.leave_timeout = options_.leave_timeout;
  agent.leave_alone_timeout = options_.leave_alone_timeout;
  agent_ = std::make_unique<AgentRunner>(std::move(agent),
                                         AgentRunner::Parts{.channel = channel,
                                                            .stager = stager_.get(),
                                                            .clock = options_.clock,
                                                            .rng = options_.rng,
                                                            .logger = options_.logger},
                                         std::move(finished));
}

OwnExperts& ExpertNode::own_experts() { return experts_->direct(); }

void ExpertNode::Leave() {
  if (agent_ != nullptr) agent_->Leave();
}

AgentView ExpertNode::agent_view() const {
  return agent_ == nullptr ? AgentView{} : agent_->View();
}

void ExpertNode::Stop(Duration drain) {
  // First, so that no PREPARE arrives while the service ends.
  agent_.reset();
  if (groups_ != nullptr) groups_->Stop();
  if (experts_ != nullptr) experts_->Stop(drain);
}

}  // namespace switchyard
