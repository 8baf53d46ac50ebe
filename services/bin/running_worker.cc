#include "services/bin/running_worker.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <future>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "core/base/dial_address.h"
#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/port_range.h"
#include "core/base/product_version.h"
#include "core/base/status_macros.h"
#include "core/format/dtype.h"
#include "core/rng.h"
#include "services/bin/bin_support.h"
#include "services/channels/grpc_channels.h"
#include "services/config/security_files.h"
#include "services/grpc/listener.h"
#include "services/system/grpc_health.h"
#include "services/system/system_server.h"
#include "services/tracing/trace_exporter.h"
#include "services/worker/worker_health.h"
#include "services/worker/worker_metrics.h"
#include "services/worker/worker_server.h"
#include "worker/expert_node.h"
#include "worker/registry/device_registry.h"
#include "worker/registry/transport_registry.h"
#include "worker/source/registry/runner_registry.h"
#include "worker/source/source_pool.h"

namespace switchyard {
namespace {

// In-flight calls may finish for this long after the drain; their callers can retry elsewhere.
constexpr Duration kShutdown = std::chrono::seconds(2);

// A run on this worker's experts ends without a frame, so nothing else wakes the transports of the
// gateway's sources. Thread-safe.
class GatewayWakes {
 public:
  void Add(Transport* transport) {
    const std::size_t index = count_.fetch_add(1);
    if (index < transports_.size()) transports_[index].store(transport);
  }
  void WakeAll() const {
    for (const auto& each : transports_) {
      if (Transport* transport = each.load()) transport->Wake();
    }
  }

 private:
  std::array<std::atomic<Transport*>, kSourcesMax> transports_{};
  std::atomic<std::size_t> count_{0};
};

// The server shows metrics for as long as this lives, and uses what stands above it for them.
class ServedMetrics {
 public:
  ServedMetrics() = default;
  ~ServedMetrics() { Stop(); }
  ServedMetrics(const ServedMetrics&) = delete;
  ServedMetrics& operator=(const ServedMetrics&) = delete;
  void Start(WorkerServer* server, std::function<std::vector<MetricFamily>()> collect) {
    server_ = server;
    server_->ServeMetrics(std::move(collect));
  }
  void Stop() {
    if (server_ != nullptr) std::exchange(server_, nullptr)->ServeMetrics(nullptr);
  }

 private:
  WorkerServer* server_ = nullptr;
};

// UCX listens where gRPC does, unless it is told otherwise.
std::string DevicesOf(const WorkerSettings& settings) {
  if (!settings.net_devices.empty()) return settings.net_devices;
  const auto listen = ParseListen(settings.network.listen);
  return listen.ok() ? NetDevicesOf(listen->host) : "all";
}

// The command line was checked.
PortRange DataPortsOf(const WorkerSettings& settings) {
  return ParsePortRange(settings.data_ports).value_or(PortRange{});
}

TransportOptions TransportFor(const WorkerSettings& settings, Incarnation incarnation) {
  return {.incarnation = incarnation,
          .busy_poll = settings.busy_poll,
          .net_devices = DevicesOf(settings),
          .ucx_log_level = "",
          .ports = DataPortsOf(settings),
          .ring_dir = settings.ring_dir};
}

}  // namespace

// Members are destroyed from last to first, and each uses only those above it.
class RunningWorker::Parts {
 public:
  Parts(const WorkerSettings& settings, Surroundings surroundings)
      : settings_(settings), surroundings_(std::move(surroundings)) {}

  absl::Status Start();
  absl::Status End();
  [[nodiscard]] std::string endpoint() const { return server_->grpc().endpoint(); }
  [[nodiscard]] std::shared_ptr<RankHost> rank_host() const { return node_->rank_host(); }
  [[nodiscard]] Heartbeat MakeHeartbeat() const { return node_->experts().MakeHeartbeat(); }

 private:
  absl::Status OpenSystemPort(const std::string& host);
  absl::StatusOr<std::unique_ptr<ExpertNode>> MakeNode();
  absl::StatusOr<std::unique_ptr<Source>> MakeGatewaySource();
  absl::Status StartServer(const ListenAddress& listen, std::shared_ptr<Listener> listener);
  void StartHealth();
  void OnFault(const absl::Status& why);
  [[nodiscard]] absl::Status fault() const;
  [[nodiscard]] MetricsText Metrics() const;
  void Stop(Duration grace);

  const WorkerSettings settings_;
  const Surroundings surroundings_;
  SteadyClock clock_;
  SystemRng rng_;
  mutable Mutex mutex_;
  absl::Status fault_ SY_GUARDED_BY(mutex_);           // of the device
  std::promise<absl::Status> finished_;                // the agent has nothing to do any more
  std::shared_ptr<const TransportSecurity> security_;  // null: none
  const std::shared_ptr<CallCounter> calls_ = std::make_shared<CallCounter>();
  std::unique_ptr<TraceExporter> traces_;
  std::unique_ptr<ExpertNode> node_;
  std::unique_ptr<AgentChannel> agent_channel_;
  std::unique_ptr<SessionChannel> session_channel_;
  Incarnation incarnation_;
  std::vector<std::string> data_hosts_;  // of the experts' transport
  GatewayWakes wakes_;
  std::unique_ptr<SourcePool> sources_;  // for the gateway's sessions
  std::unique_ptr<WorkerServer> server_;
  std::unique_ptr<WorkerHealth> health_;
  // The parts above are there, and stay until the end. Set once.
  std::atomic<bool> has_started_{false};
  std::unique_ptr<HealthMonitor> monitor_;
  ServedMetrics metrics_;
  std::unique_ptr<SystemServer> system_;  // null: the settings want none
};

void RunningWorker::Parts::OnFault(const absl::Status& why) {
  {
    const MutexLock lock(mutex_);
    fault_.Update(why);
  }
  surroundings_.on_end();
}

absl::Status RunningWorker::Parts::fault() const {
  const MutexLock lock(mutex_);
  return fault_;
}

absl::StatusOr<std::unique_ptr<ExpertNode>> RunningWorker::Parts::MakeNode() {
  ExpertNodeOptions node;
  node.worker_id = settings_.id;
  node.pool = settings_.pool;
  node.release = kProductVersion;
  incarnation_ = rng_.NextId<Incarnation>();
  node.incarnation = incarnation_;
  SY_ASSIGN_OR_RETURN(node.device,
                      surroundings_.make_device(settings_.device, surroundings_.logger));
  SY_ASSIGN_OR_RETURN(node.transport, MakeTransport("ucx", TransportFor(settings_, incarnation_)));
  data_hosts_ = node.transport->hosts();
  node.ring_dir = settings_.ring_dir;
  node.transport_names = {"shm", "tcp"};
  node.weight_bytes_max = settings_.weight_bytes_max;
  node.load_threads = settings_.load_threads;
  for (const std::string& name : settings_.wire_dtypes) {
    node.wire_dtypes.push_back(*DispatchDtypeFromName(name));  // The command line was checked.
  }
  node.leave_timeout = settings_.leave_timeout;
  node.leave_alone_timeout = settings_.leave_alone_timeout;
  node.tracer = traces_->MakeFollower();
  node.on_tracing = [this](const TraceSettings& tracing) { traces_->Follow(tracing); };
  // One that has failed for good: the coordinator places its experts elsewhere.
  node.on_device_fault = [this](const absl::Status& why) { OnFault(why); };
  node.clock = &clock_;
  node.rng = &rng_;
  node.logger = surroundings_.logger;
  return ExpertNode::Create(std::move(node));
}

// A source that runs steps of gateway callers. It has its own transport, so that its progress
// thread does not share one with the experts, and it calls this worker's experts directly.
absl::StatusOr<std::unique_ptr<Source>> RunningWorker::Parts::MakeGatewaySource() {
  RunnerParts parts;
  parts.channel = session_channel_.get();
  parts.incarnation = rng_.NextId<Incarnation>();
  SourceOptions source;
  SY_ASSIGN_OR_RETURN(source.transport,
                      MakeTransport("ucx", TransportFor(settings_, parts.incarnation)));
  parts.transport = source.transport.get();
  SY_ASSIGN_OR_RETURN(parts.device, MakeDevice(kDefaultDevice));
  parts.clock = &clock_;
  parts.rng = &rng_;
  parts.own_experts = &node_->own_experts();
  parts.traces = traces_.get();
  wakes_.Add(parts.transport);
  parts.own_worker_id = settings_.id;
  parts.ring_dir = settings_.ring_dir;
  source.coordinator = session_channel_.get();
  source.make_runner = MakeRunnerFactory(std::move(parts));
  source.clock = &clock_;
  return Source::Create(std::move(source));
}

MetricsText RunningWorker::Parts::Metrics() const {
  WorkerFacts facts = CollectWorkerFacts(monitor_->Look(), settings_.weight_bytes_max, *server_,
                                         &node_->experts(), &node_->groups());
  facts.traces = traces_->counts();
  MetricsText text = WorkerMetrics(facts);
  AddOwnCertificate(security_.get(), &text);
  AddCalls(calls_->Counts(), &text);
  return text;
}

// Answers probes over HTTP from now on, if the settings name a port for it. Before StartHealth
// this worker lives, is not ready, and has no metrics.
absl::Status RunningWorker::Parts::OpenSystemPort(const std::string& host) {
  monitor_ = std::make_unique<HealthMonitor>([this] {
    if (has_started_) {
      // The monitor's is the thread that wakes up in a worker without peers.
      server_->CloseTestPorts(clock_.Now());
      return health_->Look();
    }
    return Health{.not_live = "", .not_ready = "the worker is starting; try again in a moment"};
  });
  if (!settings_.network.system_port) return absl::OkStatus();
  SY_ASSIGN_OR_RETURN(
      system_,
      SystemServer::Start({.host = host, .port = *settings_.network.system_port}, monitor_.get(),
                          [this] { return has_started_ ? Metrics().Take() : std::string(); }));
  surroundings_.on_system_port(system_->endpoint());
  return absl::OkStatus();
}

// The worker has its parts: tells how it is over gRPC as well.
void RunningWorker::Parts::StartHealth() {
  health_ = std::make_unique<WorkerHealth>(&node_->experts(), &clock_);
  has_started_ = true;
  monitor_->Publish([this](const Health& now) {
    SetGrpcHealth(now, kWorkerHealthName, &server_->grpc());
    if (!now.live()) surroundings_.logger->Write(LogLevel::kError, now.not_live);
  });
  metrics_.Start(server_.get(), [this] { return Metrics().families(); });
}

absl::Status RunningWorker::Parts::StartServer(const ListenAddress& listen,
                                               std::shared_ptr<Listener> listener) {
  WorkerServerOptions server;
  server.grpc.host = listen.host;
  server.grpc.port = listen.port;
  server.grpc.listener = std::move(listener);
  server.grpc.security = security_;
  server.grpc.calls = calls_;
  server.worker_id = settings_.id;
  server.incarnation = incarnation_;
  server.gateway_memory_bytes_max = settings_.gateway_memory_bytes_max;
  server.gateway_sessions_max = settings_.gateway_sessions_max;
  server.data_hosts = data_hosts_;
  server.data_ports = DataPortsOf(settings_);
  server.logger = surroundings_.logger;
  SY_ASSIGN_OR_RETURN(
      server_, WorkerServer::Start(server, &node_->experts(), &node_->groups(), sources_.get()));
  return absl::OkStatus();
}

absl::Status RunningWorker::Parts::Start() {
  Logger* const logger = surroundings_.logger;
  traces_ = std::make_unique<TraceExporter>(TraceExporterOptions{
      .service = "switchyard-worker", .instance = settings_.id, .logger = logger});
  SY_ASSIGN_OR_RETURN(security_, OpenSecurity(settings_.tls_dir, logger, settings_.tenants));
  SY_ASSIGN_OR_RETURN(const ListenAddress listen, ParseListen(settings_.network.listen));
  // The ports first, because a device and its libraries may take their time: peers that connect
  // meanwhile wait and are not refused, and probes get their answers.
  SY_ASSIGN_OR_RETURN(std::shared_ptr<Listener> listener, Listener::Bind(listen.host, listen.port));
  SY_RETURN_IF_ERROR(OpenSystemPort(listen.host));
  SY_ASSIGN_OR_RETURN(node_, MakeNode());
  agent_channel_ = MakeGrpcAgentChannel(settings_.coordinator, security_);
  session_channel_ = MakeGrpcSessionChannel(settings_.coordinator, security_);
  SY_ASSIGN_OR_RETURN(auto first_source, MakeGatewaySource());
  sources_ =
      std::make_unique<SourcePool>(std::move(first_source), [this] { return MakeGatewaySource(); });
  node_->own_experts().SetOnProgress([this] { wakes_.WakeAll(); });
  SY_RETURN_IF_ERROR(StartServer(listen, std::move(listener)));
  // ExpertService must listen before the worker registers, because sources connect as soon as an
  // epoch is committed.
  const std::string dialed = settings_.advertise.empty() ? endpoint() : settings_.advertise;
  if (const std::string why = WhyNotDialable(dialed); !why.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("this worker would tell its peers the address \"", dialed,
                                  "\", which ", why, "; set --advertise"));
  }
  StartHealth();
  node_->Join(agent_channel_.get(), dialed, [this](absl::Status why) {
    finished_.set_value(std::move(why));
    surroundings_.on_end();
  });
  return absl::OkStatus();
}

absl::Status RunningWorker::Parts::End() {
  // At once, without a drain: steps on a broken device would only fail more slowly.
  if (absl::Status why = fault(); !why.ok()) {
    Stop(Duration::zero());
    return why;
  }
  std::future<absl::Status> end = finished_.get_future();
  // If the agent itself has finished, it has already left.
  const TimePoint leave_by = clock_.Now() + settings_.leave_timeout + settings_.leave_alone_timeout;
  if (end.wait_for(Duration::zero()) != std::future_status::ready) {
    server_->LeaveGateway();
    node_->Leave();
  }
  absl::Status why = end.get();
  if (why.ok()) server_->WaitForGateway(leave_by);
  Stop(kShutdown);
  return why;
}

// Parts that others use cannot end before those: the agent, for one, dials its channel until the
// node has stopped.
void RunningWorker::Parts::Stop(Duration grace) {
  system_.reset();
  metrics_.Stop();
  monitor_.reset();
  // The server first: its calls use the gateway's source, and the source uses the node.
  server_->grpc().Shutdown(grace);
  // The callback points at the sources' transports, which go next.
  node_->own_experts().SetOnProgress({});
  sources_.reset();
  node_->Stop(grace);
  traces_->Stop(grace);
}

RunningWorker::RunningWorker(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

RunningWorker::~RunningWorker() { End().IgnoreError(); }

absl::StatusOr<std::unique_ptr<RunningWorker>> RunningWorker::Start(const WorkerSettings& settings,
                                                                    Surroundings surroundings) {
  auto parts = std::make_unique<Parts>(settings, std::move(surroundings));
  SY_RETURN_IF_ERROR(parts->Start());
  return std::unique_ptr<RunningWorker>(new RunningWorker(std::move(parts)));
}

std::string RunningWorker::endpoint() const { return parts_->endpoint(); }

std::shared_ptr<RankHost> RunningWorker::rank_host() const { return parts_->rank_host(); }

Heartbeat RunningWorker::MakeHeartbeat() const { return parts_->MakeHeartbeat(); }

absl::Status RunningWorker::End() {
  if (!end_.has_value()) {
    end_ = parts_->End();
    parts_.reset();
  }
  return *end_;
}

}  // namespace switchyard
