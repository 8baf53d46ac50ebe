// switchyard-coordinator: places experts, plans epochs and opens sessions. It is never in the path
// of tokens. Exit codes: core/cli/exit_code.h.
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "coordinator/checkpoints/model_loader.h"
#include "coordinator/checkpoints/remembering_loader.h"
#include "coordinator/driver.h"
#include "coordinator/spec/dispatch_defaults.h"
#include "coordinator/store/registry.h"
#include "core/base/error.h"
#include "core/base/once_set.h"
#include "core/base/status_macros.h"
#include "core/cli/process_end.h"
#include "core/rng.h"
#include "services/bin/bin_support.h"
#include "services/bin/coordinator_options.h"
#include "services/bin/service_manager.h"
#include "services/bin/start_progress.h"
#include "services/config/config_file.h"
#include "services/config/security_files.h"
#include "services/convert/admin.h"
#include "services/coordinator/coordinator_health.h"
#include "services/coordinator/coordinator_metrics.h"
#include "services/coordinator/coordinator_server.h"
#include "services/coordinator/live_page.h"
#include "services/coordinator/worker_dialer.h"
#include "services/grpc/grpc_log.h"
#include "services/grpc/listener.h"
#include "services/options/read_options.h"
#include "services/system/grpc_health.h"
#include "services/system/system_server.h"

namespace switchyard {
namespace {

// How long the ports wait for the outcome of the first applies, which is known by then unless a
// checkpoint's disk is slow.
constexpr Duration kFirstAnswers = std::chrono::milliseconds(120);
// Short: open calls are answered by the driver's shutdown before this applies.
constexpr Duration kShutdown = std::chrono::seconds(2);
// How long a worker may take to answer at its endpoint before it counts as unreachable.
constexpr Duration kDial = std::chrono::seconds(4);

absl::StatusOr<std::vector<DeploymentSpec>> ReadSpecs(const std::vector<std::string>& paths) {
  std::vector<DeploymentSpec> all;
  std::map<std::string, std::string> files;  // by the name of a deployment
  for (const std::string& path : paths) {
    SY_ASSIGN_OR_RETURN(const std::vector<v1::DeploymentSpec> specs, ReadDeployments(path));
    for (const v1::DeploymentSpec& proto : specs) {
      // Within a file ReadDeployments sees it.
      const auto [file, added] = files.try_emplace(proto.name(), path);
      if (!added) {
        return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                         absl::StrCat("deployment \"", proto.name(), "\" is in ", file->second,
                                      " and in ", path, "; give each a name of its own"));
      }
      v1::ApplyDeploymentRequest request;
      *request.mutable_deployment() = proto;
      SY_ASSIGN_OR_RETURN(all.emplace_back(), FromProto(request));
    }
  }
  return all;
}

// Applies in a first start. A deployment that cannot be applied ends the program.
void ApplyFirst(Driver& driver, const std::vector<DeploymentSpec>& specs, FatalError& fatal) {
  const auto answers = std::make_shared<std::promise<void>>();
  const auto left = std::make_shared<std::atomic<std::size_t>>(specs.size());
  for (const DeploymentSpec& spec : specs) {
    driver.ApplyDeployment(
        spec, /*dry_run=*/false,
        [&fatal, answers, left](const absl::StatusOr<DeploymentView>& deployment) {
          if (!deployment.ok()) fatal.Report(deployment.status());
          if (left->fetch_sub(1) == 1) answers->set_value();
        });
  }
  if (!specs.empty()) answers->get_future().wait_for(kFirstAnswers);
}

// A failure here is no reason to end: the deployments of the store go on.
void ApplyAgain(Driver& driver, const DeploymentSpec& spec, Logger& logger) {
  driver.ApplyDeployment(
      spec, /*dry_run=*/false,
      [&logger, name = spec.name](const absl::StatusOr<DeploymentView>& deployment) {
        if (deployment.ok()) return;
        logger.Write(LogLevel::kError,
                     absl::StrCat("deployment ", name, " was not applied: ",
                                  deployment.status().message(), "; what was stored stays"));
      });
}

// The defaults of deployments, from the command line and the environment. Logs each deprecated
// setting once.
absl::StatusOr<DispatchDefaults> DefaultsOf(const DispatchOptions& options, OnceSet& once,
                                            Logger& logger) {
  SY_ASSIGN_OR_RETURN(const ReadDispatchDefaults read,
                      MakeDispatchDefaults(EnvironmentVariable, options));
  for (const Warning& warning : read.warnings) {
    if (once.First(WarningName(warning.id))) logger.Write(LogLevel::kWarn, warning.text);
  }
  return read.defaults;
}

void SayWherePlansAre(const std::string& store, Logger& logger) {
  constexpr absl::string_view kSqlite = "sqlite:";
  if (absl::StartsWith(store, kSqlite)) {
    const auto file = std::filesystem::absolute(store.substr(kSqlite.size()));
    logger.Write(LogLevel::kInfo, absl::StrCat("plans are stored in ", file.string()));
  } else {
    logger.Write(LogLevel::kInfo,
                 "plans are stored in memory: a restart forgets deployments and ends sessions; "
                 "use --store sqlite:FILE");
  }
}

std::vector<std::string> PageHosts(const std::string& text) {
  return absl::StrSplit(text, ',', absl::SkipEmpty());
}

// Metrics of a coordinator with its certificate and its calls.
std::function<MetricsText()> MetricsOf(const Driver* driver, HealthMonitor* monitor,
                                       std::shared_ptr<const TransportSecurity> security,
                                       std::shared_ptr<const CallCounter> calls) {
  return [driver, monitor, security = std::move(security), calls = std::move(calls)] {
    MetricsText text = CoordinatorMetrics(driver->View(), driver->counters(), monitor->Look());
    AddOwnCertificate(security.get(), &text);
    AddCalls(calls->Counts(), &text);
    return text;
  };
}

// Null: the command line wants none.
absl::StatusOr<std::unique_ptr<SystemServer>> OpenSystemPort(
    const NetworkSettings& network, const std::string& host, const std::string& page_hosts,
    const Driver* driver, const std::function<MetricsText()>& metrics, HealthMonitor* monitor) {
  if (!network.system_port) return nullptr;
  SY_ASSIGN_OR_RETURN(
      std::unique_ptr<SystemServer> system,
      SystemServer::Start(
          {.host = host, .port = *network.system_port, .names = PageHosts(page_hosts)}, monitor,
          [metrics] { return metrics().Take(); },
          LivePages(
              {.view = [driver] { return driver->View(); },
               .events = [driver](std::uint64_t after) { return driver->JournalAfter(after); },
               .sessions = [driver] { return driver->Sessions(); },
               .load = [driver](const std::string& name,
                                const LoadQuery& query) { return driver->Load(name, query); }})));
  SaySystemPort(system->endpoint());
  return system;
}

// Applies what the command line names. Checkpoints are read while the ports are open already.
void ApplyAll(Driver& driver, const std::vector<DeploymentSpec>& specs, FatalError& fatal,
              Logger& logger) {
  const bool restarted = !driver.View().deployments.empty();
  if (!restarted) return ApplyFirst(driver, specs, fatal);
  for (const DeploymentSpec& spec : specs) ApplyAgain(driver, spec, logger);
}

// The port listens already.
GrpcServerOptions PortOptions(const CoordinatorSettings& options, const ListenAddress& listen,
                              std::shared_ptr<Listener> listener,
                              std::shared_ptr<const TransportSecurity> security,
                              std::shared_ptr<CallCounter> calls) {
  GrpcServerOptions grpc;
  grpc.host = listen.host;
  grpc.port = listen.port;
  grpc.listener = std::move(listener);
  grpc.security = std::move(security);
  grpc.calls = std::move(calls);
  grpc.reflection = options.reflection == "on";
  return grpc;
}

absl::Status Run(const CoordinatorSettings& options, SignalWait& signals, ProgramLog& log) {
  Logger* const logger = log.logger();
  FatalError fatal(&signals);
  SteadyClock clock;
  SystemRng rng;
  SY_ASSIGN_OR_RETURN(const ListenAddress listen, ParseListen(options.network.listen));
  // First: whoever connects meanwhile waits for what follows, and is not refused.
  SY_ASSIGN_OR_RETURN(std::shared_ptr<Listener> listener, Listener::Bind(listen.host, listen.port));
  SY_ASSIGN_OR_RETURN(std::unique_ptr<StateStore> store, OpenStateStore(options.store));
  SayWherePlansAre(options.store, *logger);
  OnceSet once;
  DriverOptions driver_options = options.driver;
  SY_ASSIGN_OR_RETURN(const std::shared_ptr<const TransportSecurity> security,
                      OpenSecurity(options.tls_dir, logger, options.tenants));
  WorkerDialer dialer(kDial, security);  // outlives the driver, which dials
  SY_ASSIGN_OR_RETURN(driver_options.coordinator.dispatch,
                      DefaultsOf(options.dispatch, once, *logger));
  const auto dial = [&dialer](const DialWorker& request, std::function<void(absl::Status)> done) {
    dialer.Dial(request, std::move(done));
  };
  SY_ASSIGN_OR_RETURN(
      const std::unique_ptr<Driver> driver,
      Driver::Create(driver_options,
                     {.store = std::move(store),
                      .check_model = CheckModelFacts,
                      .load_model = RememberingLoader(LoaderWithThreads(options.read_threads)),
                      .clock = &clock,
                      .rng = &rng,
                      .logger = logger,
                      .once = &once,
                      .dial = dial}));
  std::optional<StartProgress> progress;
  progress.emplace(&log, EnvironmentVariable("TERM").value_or(""),
                   [driver = driver.get()] { return ProgressOf(driver->View()); });
  SY_ASSIGN_OR_RETURN(const std::vector<DeploymentSpec> specs, ReadSpecs(options.deployments));
  std::unique_ptr<CoordinatorServer> server;  // outlives the monitor, which sets its health
  CoordinatorHealth health(driver.get(), &clock);
  HealthMonitor monitor([&health] { return health.Look(); });
  const auto calls = std::make_shared<CallCounter>();
  const auto metrics = MetricsOf(driver.get(), &monitor, security, calls);
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<SystemServer> system,
                      OpenSystemPort(options.network, listen.host, options.page_hosts, driver.get(),
                                     metrics, &monitor));
  ApplyAll(*driver, specs, fatal, *logger);
  SY_RETURN_IF_ERROR(fatal.why());
  CoordinatorServerOptions server_options;
  server_options.grpc = PortOptions(options, listen, std::move(listener), security, calls);
  server_options.incarnation = rng.NextId<Incarnation>();
  server_options.metrics = [metrics] { return metrics().families(); };
  SY_ASSIGN_OR_RETURN(server, CoordinatorServer::Start(server_options, driver.get()));
  health.SetAccepting(true);
  monitor.Publish([&](const Health& now) {
    SetGrpcHealth(now, kCoordinatorHealthName, &server->grpc());
    if (!now.live()) logger->Write(LogLevel::kError, now.not_live);
  });
  const ServiceManager manager(EnvironmentVariable(kNotifySocket).value_or(""), logger);
  manager.SayReady(server->grpc().endpoint());
  log.WaitForEnd(&signals);
  progress.reset();
  // Before the driver ends, which answers everything with an error.
  absl::Status why = fatal.why();
  manager.SayEnding();
  health.SetAccepting(false);
  // The driver first: gRPC's Shutdown waits for streams that only the driver ends.
  const bool ended = driver->Shutdown(kShutdown);
  server->grpc().Shutdown(kShutdown);
  // A thread still reads a piece of a model; joining it could take long.
  if (!ended) std::quick_exit(EndWith(why, logger));
  return why;
}

int Main(int argc, char** argv) {
  KeepTlsForThreads();
  SignalWait signals({SIGTERM, SIGINT, SIGUSR1, SIGUSR2});
  RaiseFileLimit();
  CoordinatorSettings settings;
  const OptionTable table = CoordinatorOptionTable(&settings);
  if (const auto end = ReadOptions(table, WordsOf(argc, argv))) return Print(*end);
  ProgramLog log("coordinator", settings.log, {&WriteGrpcLog});
  return EndWith(Run(settings, signals, log), log.logger());
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) { return switchyard::Main(argc, argv); }
