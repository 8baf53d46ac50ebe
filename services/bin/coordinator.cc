// switchyard-coordinator: places experts, plans epochs and opens sessions. It is never in the path
// of tokens. Exit codes: core/cli/exit_code.h.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "coordinator/driver.h"
#include "coordinator/model_loader.h"
#include "coordinator/spec/dispatch_defaults.h"
#include "coordinator/store/registry.h"
#include "core/base/once_set.h"
#include "core/base/status_macros.h"
#include "core/rng.h"
#include "services/bin/bin_support.h"
#include "services/bin/coordinator_options.h"
#include "services/config/config_file.h"
#include "services/convert/admin.h"
#include "services/coordinator/coordinator_health.h"
#include "services/coordinator/coordinator_metrics.h"
#include "services/coordinator/coordinator_server.h"
#include "services/coordinator/live_page.h"
#include "services/coordinator/worker_dialer.h"
#include "services/grpc/grpc_log.h"
#include "services/options/read_options.h"
#include "services/system/grpc_health.h"
#include "services/system/system_server.h"

namespace switchyard {
namespace {

// Applying a deployment hashes the whole checkpoint, which can be hundreds of gigabytes.
constexpr Duration kApplyTimeout = std::chrono::minutes(30);
// Short: open calls are answered by the driver's shutdown before this applies.
constexpr Duration kShutdown = std::chrono::seconds(2);
// How long a worker may take to answer at its endpoint before it counts as unreachable.
constexpr Duration kDial = std::chrono::seconds(4);

absl::StatusOr<std::vector<DeploymentSpec>> ReadSpecs(const std::vector<std::string>& paths) {
  std::vector<DeploymentSpec> all;
  for (const std::string& path : paths) {
    SY_ASSIGN_OR_RETURN(const std::vector<v1::DeploymentSpec> specs, ReadDeployments(path));
    for (const v1::DeploymentSpec& proto : specs) {
      v1::ApplyDeploymentRequest request;
      *request.mutable_deployment() = proto;
      SY_ASSIGN_OR_RETURN(all.emplace_back(), FromProto(request));
    }
  }
  return all;
}

absl::Status ApplyAndWait(Driver& driver, const DeploymentSpec& spec) {
  auto applied = std::make_shared<std::promise<absl::Status>>();
  driver.ApplyDeployment(spec, /*dry_run=*/false,
                         [applied](absl::StatusOr<DeploymentView> deployment) {
                           applied->set_value(deployment.status());
                         });
  std::future<absl::Status> result = applied->get_future();
  if (result.wait_for(kApplyTimeout) != std::future_status::ready) {
    return absl::UnavailableError(
        absl::StrCat("applying deployment ", spec.name, " took too long"));
  }
  return result.get();
}

// A failure here is no reason to end: the deployments of the store go on.
void ApplyInBackground(Driver& driver, const DeploymentSpec& spec, Logger& logger) {
  driver.ApplyDeployment(
      spec, /*dry_run=*/false,
      [&logger, name = spec.name](absl::StatusOr<DeploymentView> deployment) {
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

// Null: the command line wants none. Opened before deployments are applied, so that a probe can
// tell a coordinator that reads a checkpoint from one that is dead.
absl::StatusOr<std::unique_ptr<SystemServer>> OpenSystemPort(const NetworkSettings& network,
                                                             const std::string& host,
                                                             const Driver* driver,
                                                             HealthMonitor* monitor) {
  if (!network.system_port) return nullptr;
  SY_ASSIGN_OR_RETURN(
      std::unique_ptr<SystemServer> system,
      SystemServer::Start(
          {.host = host, .port = *network.system_port}, monitor,
          [driver, monitor] {
            return CoordinatorMetrics(driver->View(), driver->counters(), monitor->Look());
          },
          LivePages(
              {.view = [driver] { return driver->View(); },
               .events = [driver](std::uint64_t after) { return driver->JournalAfter(after); },
               .sessions = [driver] { return driver->Sessions(); },
               .load = [driver](const std::string& name,
                                const LoadQuery& query) { return driver->Load(name, query); }})));
  SaySystemPort(system->endpoint());
  return system;
}

// Applies what the command line names. A first start applies before the port is open, so that the
// first worker or session already finds the deployments. A restart opens the port at once: reading
// the checkpoints takes minutes, and the workers of what is stored have join_timeout to come back.
absl::Status ApplyAll(Driver& driver, const std::vector<DeploymentSpec>& specs, Logger& logger) {
  const bool restarted = !driver.View().deployments.empty();
  for (const DeploymentSpec& spec : specs) {
    if (restarted) {
      ApplyInBackground(driver, spec, logger);
    } else {
      SY_RETURN_IF_ERROR(ApplyAndWait(driver, spec));
    }
  }
  return absl::OkStatus();
}

absl::Status Run(const CoordinatorSettings& options, SignalWait& signals, ProgramLog& log) {
  Logger* const logger = log.logger();
  SteadyClock clock;
  SystemRng rng;
  SY_ASSIGN_OR_RETURN(std::unique_ptr<StateStore> store, OpenStateStore(options.store));
  SayWherePlansAre(options.store, *logger);
  OnceSet once;
  DriverOptions driver_options = options.driver;
  WorkerDialer dialer(kDial);  // outlives the driver, which dials
  SY_ASSIGN_OR_RETURN(driver_options.coordinator.dispatch,
                      DefaultsOf(options.dispatch, once, *logger));
  const auto dial = [&dialer](const DialWorker& request, std::function<void(absl::Status)> done) {
    dialer.Dial(request, std::move(done));
  };
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<Driver> driver,
                      Driver::Create(driver_options, {.store = std::move(store),
                                                      .load_model = LoadModelFacts,
                                                      .clock = &clock,
                                                      .rng = &rng,
                                                      .logger = logger,
                                                      .once = &once,
                                                      .dial = dial}));
  SY_ASSIGN_OR_RETURN(const std::vector<DeploymentSpec> specs, ReadSpecs(options.deployments));
  SY_ASSIGN_OR_RETURN(const ListenAddress listen, ParseListen(options.network.listen));
  std::unique_ptr<CoordinatorServer> server;  // outlives the monitor, which sets its health
  CoordinatorHealth health(driver.get(), &clock);
  HealthMonitor monitor([&health] { return health.Look(); });
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<SystemServer> system,
                      OpenSystemPort(options.network, listen.host, driver.get(), &monitor));
  SY_RETURN_IF_ERROR(ApplyAll(*driver, specs, *logger));
  CoordinatorServerOptions server_options;
  server_options.grpc.host = listen.host;
  server_options.grpc.port = listen.port;
  server_options.incarnation = rng.NextId<Incarnation>();
  SY_ASSIGN_OR_RETURN(server, CoordinatorServer::Start(server_options, driver.get()));
  health.SetAccepting(true);
  monitor.Publish([&](const Health& now) {
    SetGrpcHealth(now, kCoordinatorHealthName, &server->grpc());
    if (!now.live()) logger->Write(LogLevel::kError, now.not_live);
  });
  // The programs that start this one read the port from this line.
  std::printf("ready %s\n", server->grpc().endpoint().c_str());
  std::fflush(stdout);
  log.WaitForEnd(&signals);
  health.SetAccepting(false);
  // The driver first: gRPC's Shutdown waits for streams that only the driver ends.
  const bool ended = driver->Shutdown(kShutdown);
  server->grpc().Shutdown(kShutdown);
  if (!ended) std::quick_exit(0);  // A thread still reads a model; joining it could take minutes.
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
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
