#include "harness/in_process_deployment.h"

#include <algorithm>
#include <future>
#include <utility>

#include "absl/strings/str_cat.h"

#include "coordinator/checkpoints/model_loader.h"
#include "coordinator/store/registry.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "harness/worker_devices.h"
#include "services/in_process/agent_channel.h"
#include "worker/registry/device_registry.h"
#include "worker/registry/transport_registry.h"
#include "worker/transport/loopback/hub.h"

namespace switchyard {
namespace {

constexpr Duration kApplyTimeout = std::chrono::seconds(120);  // hashes the whole checkpoint
constexpr Phase kPhases[] = {Phase::kPrefill, Phase::kDecode, Phase::kMixed};

}  // namespace

struct InProcessDeployment::Worker {
  std::string endpoint;
  std::unique_ptr<AgentChannel> channel;
  std::unique_ptr<ExpertNode> node;
};

InProcessDeployment::InProcessDeployment(const InProcessOptions& options)
    : options_(options), hub_(std::make_unique<LoopbackHub>()) {}

InProcessDeployment::~InProcessDeployment() {
  // Workers before the driver, which their agents still call.
  for (std::size_t w = 0; w < workers_.size(); ++w) KillWorker(w);
  if (driver_ != nullptr) driver_->Shutdown(std::chrono::seconds(1));
}

absl::StatusOr<std::unique_ptr<InProcessDeployment>> InProcessDeployment::Start(
    const InProcessOptions& options) {
  std::unique_ptr<InProcessDeployment> deployment(new InProcessDeployment(options));
  SY_RETURN_IF_ERROR(deployment->StartAll());
  return deployment;
}

absl::Status InProcessDeployment::StartAll() {
  SY_ASSIGN_OR_RETURN(std::unique_ptr<StateStore> store, OpenStateStore("memory"));
  SY_ASSIGN_OR_RETURN(driver_, Driver::Create({.coordinator = options_.coordinator},
                                              {.store = std::move(store),
                                               .check_model = CheckModelFacts,
                                               .load_model = LoadModelFacts,
                                               .clock = &clock_,
                                               .rng = &rng_,
                                               .logger = options_.logger}));
  DeploymentSpec spec;
  spec.name = options_.name;
  spec.checkpoint = options_.checkpoint;
  spec.min_workers = options_.workers;
  spec.max_tokens_per_step = options_.max_tokens_per_step;
  spec.dispatcher_output_dtype = options_.dispatcher_output_dtype;
  // Three phases, because an unset one would be planned in its default mode.
  if (options_.mode) {
    for (const Phase phase : kPhases) spec.phases.push_back({phase, options_.mode});
  }
  // Before the workers join, so that the first plan has all of them.
  SY_RETURN_IF_ERROR(Apply(spec));
  for (std::int32_t w = 0; w < options_.workers; ++w) SY_RETURN_IF_ERROR(AddWorker());
  return absl::OkStatus();
}

absl::Status InProcessDeployment::Apply(const DeploymentSpec& spec) {
  auto applied = std::make_shared<std::promise<absl::Status>>();
  driver_->ApplyDeployment(spec, /*dry_run=*/false,
                           [applied](absl::StatusOr<DeploymentView> deployment) {
                             applied->set_value(deployment.status());
                           });
  std::future<absl::Status> result = applied->get_future();
  if (result.wait_for(kApplyTimeout) == std::future_status::ready) return result.get();
  return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                   absl::StrCat("applying ", spec.checkpoint, " took too long"));
}

absl::Status InProcessDeployment::WaitUntilServes(Duration timeout) {
  absl::Status result;
  // A view between two steps is consistent, so one look at it is enough.
  const auto settled = [&](const CoordinatorView& view) {
    const auto own =
        std::find_if(view.deployments.begin(), view.deployments.end(),
                     [this](const auto& one) { return one.spec.name == options_.name; });
    const bool found = own != view.deployments.end();
    if (found && own->serving != nullptr) {
      result = absl::OkStatus();
      return true;
    }
    // A problem while an epoch is pending may be solved by that epoch.
    if (found && !own->problem.ok() && own->pending.value == 0) {
      result = own->problem;
      return true;
    }
    result = MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                       absl::StrCat("deployment ", options_.name,
                                    " does not serve yet: ", found ? own->activity : "unknown"));
    return false;
  };
  driver_->WaitForView(settled, timeout);
  return result;
}

absl::StatusOr<std::unique_ptr<Transport>> InProcessDeployment::NewTransport(
    Incarnation incarnation) {
  return options_.over_ucx
             ? MakeTransport("ucx", {.incarnation = incarnation, .net_devices = "lo"})
             : MakeTransport("loopback", {.incarnation = incarnation, .hub = hub_.get()});
}

absl::Status InProcessDeployment::AddWorker() {
  auto worker = std::make_unique<Worker>();
  const std::string id = absl::StrCat("w", workers_.size());
  worker->endpoint = absl::StrCat("inproc:", id);
  ExpertNodeOptions options;
  if (options_.make_tracer) options.tracer = options_.make_tracer();
  options.worker_id = id;
  options.incarnation = rng_.NextId<Incarnation>();
  if (options_.make_device) {
    SY_ASSIGN_OR_RETURN(options.device, options_.make_device(workers_.size()));
  } else {
    SY_ASSIGN_OR_RETURN(options.device,
                        MakeDevice(DeviceOfWorker(options_.device, workers_.size())));
  }
  if (!options_.wire_dtypes.empty()) {
    options.wire_dtypes = options_.wire_dtypes[workers_.size() % options_.wire_dtypes.size()];
  }
  if (options_.on_device_fault) {
    options.on_device_fault = [this, w = workers_.size()](const absl::Status& why) {
      options_.on_device_fault(w, why);
    };
  }
  SY_ASSIGN_OR_RETURN(options.transport, NewTransport(options.incarnation));
  options.transport_names = {options_.over_ucx ? "shm" : "inproc"};
  options.clock = &clock_;
  options.rng = &rng_;
  options.logger = options_.logger;
  SY_ASSIGN_OR_RETURN(worker->node, ExpertNode::Create(std::move(options)));
  directory_.Add(worker->endpoint, id, &worker->node->experts());
  worker->channel = MakeInProcessAgentChannel(driver_.get());
  worker->node->Join(worker->channel.get(), worker->endpoint, [](const absl::Status&) {});
  workers_.push_back(std::move(worker));
  return absl::OkStatus();
}

void InProcessDeployment::KillWorker(std::size_t worker) {
  Worker& dying = *workers_[worker];
  // First out of the directory, so that no call reaches the node while it is destroyed.
  directory_.Remove(dying.endpoint);
  dying.node.reset();  // Destroys its transport too, so sources see the links break.
}

absl::StatusOr<std::unique_ptr<Client>> InProcessDeployment::MakeClient(
    std::unique_ptr<DeviceBackend> tensors) {
  ClientParts parts;
  parts.tensors = std::move(tensors);
  if (options_.make_traces) parts.traces = options_.make_traces();
  parts.incarnation = rng_.NextId<Incarnation>();
  parts.sessions = MakeInProcessSessionChannel(driver_.get(), &directory_);
  SY_ASSIGN_OR_RETURN(parts.transport, NewTransport(parts.incarnation));
  // Sources encode and add in host memory, whatever device the workers have.
  SY_ASSIGN_OR_RETURN(parts.device, MakeDevice(kDefaultDevice));
  ClientOptions options;
  options.transport = options_.over_ucx ? TransportChoice::kShm : TransportChoice::kInProcess;
  return Client::Over(options, std::move(parts));
}

}  // namespace switchyard
