#include "services/bin/worker_program.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include <malloc.h>

#include "core/base/dial_address.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/port_range.h"
#include "core/base/status_macros.h"
#include "core/format/dtype.h"
#include "core/rng.h"
#include "services/bin/bin_support.h"
#include "services/bin/service_manager.h"
#include "services/bin/start_progress.h"
#include "services/bin/worker_options.h"
#include "services/channels/grpc_channels.h"
#include "services/config/config_file.h"
#include "services/config/security_files.h"
#include "services/grpc/grpc_log.h"
#include "services/grpc/listener.h"
#include "services/grpc/version.h"
#include "services/options/read_options.h"
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

// Each expert that is loaded passes through buffers of megabytes. By default they go back to the
// system in between, and clearing their pages takes longer than anything else in loading.
void KeepFreedMemory() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);  // the most that every glibc takes
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

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

// All parts of a worker process. Members are destroyed from last to first, and each uses only parts
// above it.
struct Worker {
  SteadyClock clock;
  SystemRng rng;
  Logger* logger = nullptr;
  std::shared_ptr<const TransportSecurity> security;  // null: none
  const std::shared_ptr<CallCounter> calls = std::make_shared<CallCounter>();
  std::unique_ptr<TraceExporter> traces;
  std::unique_ptr<ExpertNode> node;
  std::unique_ptr<AgentChannel> agent_channel;
  std::unique_ptr<SessionChannel> session_channel;
  Incarnation incarnation;
  std::vector<std::string> data_hosts;  // of the experts' transport
  GatewayWakes wakes;
  std::unique_ptr<SourcePool> sources;  // for the gateway's sessions
  std::unique_ptr<WorkerServer> server;
  std::unique_ptr<WorkerHealth> health;
  // The parts above are there, and stay until the end. Set once.
  std::atomic<bool> has_started{false};
  std::unique_ptr<HealthMonitor> monitor;
  ServedMetrics metrics;
  std::unique_ptr<SystemServer> system;  // null: the command line wants none
};

// UCX listens where gRPC does, unless it is told otherwise.
std::string DevicesOf(const WorkerSettings& options) {
  if (!options.net_devices.empty()) return options.net_devices;
  const auto listen = ParseListen(options.network.listen);
  return listen.ok() ? NetDevicesOf(listen->host) : "all";
}

// The command line was checked.
PortRange DataPortsOf(const WorkerSettings& options) {
  return ParsePortRange(options.data_ports).value_or(PortRange{});
}

TransportOptions TransportFor(const WorkerSettings& options, Incarnation incarnation) {
  return {.incarnation = incarnation,
          .busy_poll = options.busy_poll,
          .net_devices = DevicesOf(options),
          .ucx_log_level = "",
          .ports = DataPortsOf(options),
          .ring_dir = options.ring_dir};
}

absl::StatusOr<std::unique_ptr<ExpertNode>> MakeNode(const WorkerSettings& options,
                                                     const MakeDeviceFunction& make_device,
                                                     Worker& worker, FatalError& fault) {
  ExpertNodeOptions node;
  node.worker_id = options.id;
  node.pool = options.pool;
  node.release = kProductVersion;
  worker.incarnation = worker.rng.NextId<Incarnation>();
  node.incarnation = worker.incarnation;
  SY_ASSIGN_OR_RETURN(node.device, make_device(options.device, worker.logger));
  SY_ASSIGN_OR_RETURN(node.transport,
                      MakeTransport("ucx", TransportFor(options, node.incarnation)));
  worker.data_hosts = node.transport->hosts();
  node.ring_dir = options.ring_dir;
  node.transport_names = {"shm", "tcp"};
  node.weight_bytes_max = options.weight_bytes_max;
  node.load_threads = options.load_threads;
  for (const std::string& name : options.wire_dtypes) {
    node.wire_dtypes.push_back(*DispatchDtypeFromName(name));  // The command line was checked.
  }
  node.leave_timeout = options.leave_timeout;
  node.tracer = worker.traces->MakeFollower();
  node.on_tracing = [&worker](const TraceSettings& settings) { worker.traces->Follow(settings); };
  // One that has failed for good: the coordinator places its experts elsewhere.
  node.on_device_fault = [&fault](const absl::Status& why) { fault.Report(why); };
  node.clock = &worker.clock;
  node.rng = &worker.rng;
  node.logger = worker.logger;
  return ExpertNode::Create(std::move(node));
}

// A source that runs steps of gateway callers. It has its own transport, so that its progress
// thread does not share one with the experts, and it calls this worker's experts directly.
absl::StatusOr<std::unique_ptr<Source>> MakeGatewaySource(const WorkerSettings& options,
                                                          Worker& worker) {
  RunnerParts parts;
  parts.channel = worker.session_channel.get();
  parts.incarnation = worker.rng.NextId<Incarnation>();
  SourceOptions source;
  SY_ASSIGN_OR_RETURN(source.transport,
                      MakeTransport("ucx", TransportFor(options, parts.incarnation)));
  parts.transport = source.transport.get();
  SY_ASSIGN_OR_RETURN(parts.device, MakeDevice(kDefaultDevice));
  parts.clock = &worker.clock;
  parts.rng = &worker.rng;
  parts.own_experts = &worker.node->own_experts();
  parts.traces = worker.traces.get();
  worker.wakes.Add(parts.transport);
  parts.own_worker_id = options.id;
  parts.ring_dir = options.ring_dir;
  source.coordinator = worker.session_channel.get();
  source.make_runner = MakeRunnerFactory(std::move(parts));
  source.clock = &worker.clock;
  return Source::Create(std::move(source));
}

// Metrics of a worker with all its parts.
MetricsText MetricsOf(const Worker& worker, std::int64_t weight_bytes_max) {
  WorkerFacts facts = CollectWorkerFacts(worker.monitor->Look(), weight_bytes_max, *worker.server,
                                         &worker.node->experts(), &worker.node->groups());
  facts.traces = worker.traces->counts();
  MetricsText text = WorkerMetrics(facts);
  AddOwnCertificate(worker.security.get(), &text);
  AddCalls(worker.calls->Counts(), &text);
  return text;
}

// Answers probes over HTTP from now on, if the command line names a port for it. Before StartHealth
// this worker lives, is not ready, and has no metrics.
absl::Status OpenSystemPort(const WorkerSettings& options, const std::string& host,
                            Worker* worker) {
  worker->monitor = std::make_unique<HealthMonitor>([worker] {
    if (worker->has_started) {
      // The monitor's is the thread that wakes up in a worker without peers.
      worker->server->CloseTestPorts(worker->clock.Now());
      return worker->health->Look();
    }
    return Health{.not_live = "", .not_ready = "the worker is starting; try again in a moment"};
  });
  if (!options.network.system_port) return absl::OkStatus();
  SY_ASSIGN_OR_RETURN(
      worker->system,
      SystemServer::Start({.host = host, .port = *options.network.system_port},
                          worker->monitor.get(),
                          [worker, weight_bytes_max = options.weight_bytes_max]() -> std::string {
                            if (!worker->has_started) return "";
                            return MetricsOf(*worker, weight_bytes_max).Take();
                          }));
  SaySystemPort(worker->system->endpoint());
  return absl::OkStatus();
}

// The worker has its parts: tells how it is over gRPC as well.
void StartHealth(const WorkerSettings& options, Worker* worker) {
  worker->health = std::make_unique<WorkerHealth>(&worker->node->experts(), &worker->clock);
  worker->has_started = true;
  worker->monitor->Publish([worker](const Health& now) {
    SetGrpcHealth(now, kWorkerHealthName, &worker->server->grpc());
    if (!now.live()) worker->logger->Write(LogLevel::kError, now.not_live);
  });
  worker->metrics.Start(worker->server.get(),
                        [worker, weight_bytes_max = options.weight_bytes_max] {
                          return MetricsOf(*worker, weight_bytes_max).families();
                        });
}

absl::Status StartServer(const WorkerSettings& options, const ListenAddress& listen,
                         std::shared_ptr<Listener> listener, Worker* worker) {
  WorkerServerOptions server;
  server.grpc.host = listen.host;
  server.grpc.port = listen.port;
  server.grpc.listener = std::move(listener);
  server.grpc.security = worker->security;
  server.grpc.calls = worker->calls;
  server.worker_id = options.id;
  server.incarnation = worker->incarnation;
  server.gateway_memory_bytes_max = options.gateway_memory_bytes_max;
  server.gateway_sessions_max = options.gateway_sessions_max;
  server.data_hosts = worker->data_hosts;
  server.data_ports = DataPortsOf(options);
  server.logger = worker->logger;
  SY_ASSIGN_OR_RETURN(worker->server,
                      WorkerServer::Start(server, &worker->node->experts(), &worker->node->groups(),
                                          worker->sources.get()));
  return absl::OkStatus();
}

// Shows what the worker loads, until it is destroyed.
std::unique_ptr<StartProgress> DrawProgress(ProgramLog* log, Worker* worker) {
  return std::make_unique<StartProgress>(log, EnvironmentVariable("TERM").value_or(""),
                                         [worker, loading = WorkerProgress()]() mutable {
                                           const Heartbeat now =
                                               worker->node->experts().MakeHeartbeat();
                                           return loading.Of(now, worker->clock.Now());
                                         });
}

absl::Status Run(const WorkerSettings& options, const MakeDeviceFunction& make_device,
                 SignalWait& signals, ProgramLog& log) {
  Worker worker;
  worker.logger = log.logger();
  FatalError fault(&signals);
  worker.traces = std::make_unique<TraceExporter>(TraceExporterOptions{
      .service = "switchyard-worker", .instance = options.id, .logger = worker.logger});
  SY_ASSIGN_OR_RETURN(worker.security,
                      OpenSecurity(options.tls_dir, worker.logger, options.tenants));
  SY_ASSIGN_OR_RETURN(const ListenAddress listen, ParseListen(options.network.listen));
  // The ports first, because a device and its libraries may take their time: peers that connect
  // meanwhile wait and are not refused, and probes get their answers.
  SY_ASSIGN_OR_RETURN(std::shared_ptr<Listener> listener, Listener::Bind(listen.host, listen.port));
  SY_RETURN_IF_ERROR(OpenSystemPort(options, listen.host, &worker));
  SY_ASSIGN_OR_RETURN(worker.node, MakeNode(options, make_device, worker, fault));
  worker.agent_channel = MakeGrpcAgentChannel(options.coordinator, worker.security);
  worker.session_channel = MakeGrpcSessionChannel(options.coordinator, worker.security);
  SY_ASSIGN_OR_RETURN(auto first_source, MakeGatewaySource(options, worker));
  worker.sources = std::make_unique<SourcePool>(std::move(first_source),
                                                [&] { return MakeGatewaySource(options, worker); });
  worker.node->own_experts().SetOnProgress([&worker] { worker.wakes.WakeAll(); });
  SY_RETURN_IF_ERROR(StartServer(options, listen, std::move(listener), &worker));
  // ExpertService must listen before the worker registers, because sources connect as soon as an
  // epoch is committed.
  const std::string endpoint =
      options.advertise.empty() ? worker.server->grpc().endpoint() : options.advertise;
  if (const std::string why = WhyNotDialable(endpoint); !why.empty()) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("this worker would tell its peers the address \"", endpoint,
                                  "\", which ", why, "; set --advertise"));
  }
  StartHealth(options, &worker);
  std::promise<absl::Status> finished;
  worker.node->Join(worker.agent_channel.get(), endpoint, [&](absl::Status why) {
    finished.set_value(std::move(why));
    signals.Raise();  // Ends the wait below.
  });
  std::unique_ptr<StartProgress> progress = DrawProgress(&log, &worker);
  const ServiceManager manager(EnvironmentVariable(kNotifySocket).value_or(""), worker.logger);
  manager.SayReady(worker.server->grpc().endpoint());
  std::future<absl::Status> end = finished.get_future();
  log.WaitForEnd(&signals);
  progress.reset();
  manager.SayEnding();
  // At once, without a drain: steps on a broken device would only fail more slowly.
  if (absl::Status why = fault.why(); !why.ok()) return why;
  // After a signal the worker has to leave. If the agent itself has finished, it has already left.
  const TimePoint leave_by = worker.clock.Now() + options.leave_timeout;
  if (end.wait_for(Duration::zero()) != std::future_status::ready) {
    worker.server->LeaveGateway();
    worker.node->Leave();
  }
  absl::Status why = end.get();
  if (why.ok()) worker.server->WaitForGateway(leave_by);
  worker.system.reset();
  worker.metrics.Stop();
  worker.monitor.reset();
  // The server first: its calls use the gateway's source, and the source uses the node.
  worker.server->grpc().Shutdown(kShutdown);
  // The callback points at the sources' transports, which go next.
  worker.node->own_experts().SetOnProgress({});
  worker.sources.reset();
  worker.node->Stop(kShutdown);
  worker.traces->Stop(kShutdown);
  return why;
}

}  // namespace

int RunWorkerProgram(int argc, char** argv, const MakeDeviceFunction& make_device) {
  SignalWait signals({SIGTERM, SIGINT, SIGUSR1, SIGUSR2});
  RaiseFileLimit();
  WorkerSettings settings;
  const OptionTable table = WorkerOptionTable(&settings);
  if (const auto end = ReadOptions(table, WordsOf(argc, argv))) return Print(*end);
  KeepFreedMemory();
  ProgramLog log("worker " + settings.id, settings.log, {&WriteGrpcLog, &WriteTransportLogs});
  return EndWith(Run(settings, make_device, signals, log), log.logger());
}

}  // namespace switchyard
