// switchyard-coordinator: places experts, plans epochs and opens sessions. It is never in the path
// of tokens. Exit codes: 0 after SIGTERM, 1 if it could not start.
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

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "coordinator/driver.h"
#include "coordinator/model_loader.h"
#include "coordinator/placement/registry.h"
#include "coordinator/spec/dispatch_defaults.h"
#include "coordinator/store/registry.h"
#include "core/base/once_set.h"
#include "core/base/status_macros.h"
#include "core/rng.h"
#include "services/bin/bin_support.h"
#include "services/config/config_file.h"
#include "services/convert/admin.h"
#include "services/coordinator/coordinator_health.h"
#include "services/coordinator/coordinator_metrics.h"
#include "services/coordinator/coordinator_server.h"
#include "services/coordinator/worker_dialer.h"
#include "services/system/grpc_health.h"
#include "services/system/system_server.h"

namespace switchyard {
namespace {

struct Options {
  std::string listen = "127.0.0.1:0";
  std::optional<int> system_port;
  std::string store = "sqlite:switchyard.sqlite";
  std::vector<std::string> deployments;
  DispatchOptions dispatch;
  std::string placement = DriverOptions().placement;
  std::int64_t stuck_batch_s =
      std::chrono::duration_cast<std::chrono::seconds>(CoordinatorOptions().stuck_batch).count();
  std::size_t max_deployments = CoordinatorOptions().max_deployments;
  std::size_t revisions_kept = CoordinatorOptions().revisions_kept;
  std::string log_level = "info";
};

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

std::string PlacementNames() {
  return absl::StrJoin(PlacementPolicies(), ", ",
                       [](std::string* out, const auto& policy) { out->append(policy.name); });
}

void SayWherePlansAre(const std::string& store, Logger& logger) {
  constexpr absl::string_view kSqlite = "sqlite:";
  if (absl::StartsWith(store, kSqlite)) {
    const auto file = std::filesystem::absolute(store.substr(kSqlite.size()));
    logger.Write(LogLevel::kInfo, absl::StrCat("plans are stored in ", file.string()));
  } else {
    logger.Write(LogLevel::kWarn,
                 "plans are stored in memory: a restart forgets deployments and ends sessions; "
                 "use --store sqlite:FILE");
  }
}

// Null: the command line wants none. Opened before deployments are applied, so that a probe can
// tell a coordinator that reads a checkpoint from one that is dead.
absl::StatusOr<std::unique_ptr<SystemServer>> OpenSystemPort(const Options& options,
                                                             const std::string& host,
                                                             const Driver* driver,
                                                             HealthMonitor* monitor) {
  if (!options.system_port) return nullptr;
  SY_ASSIGN_OR_RETURN(
      std::unique_ptr<SystemServer> system,
      SystemServer::Start({.host = host, .port = *options.system_port}, monitor, [driver, monitor] {
        return CoordinatorMetrics(driver->View(), driver->counters(), monitor->Look());
      }));
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

absl::Status Run(const Options& options, SignalWait& signals) {
  SteadyClock clock;
  SystemRng rng;
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<Logger> logger,
                      MakeLogger("coordinator", options.log_level));
  SY_ASSIGN_OR_RETURN(std::unique_ptr<StateStore> store, OpenStateStore(options.store));
  SayWherePlansAre(options.store, *logger);
  OnceSet once;
  DriverOptions driver_options;
  driver_options.placement = options.placement;
  driver_options.coordinator.stuck_batch = std::chrono::seconds(options.stuck_batch_s);
  driver_options.coordinator.max_deployments = options.max_deployments;
  driver_options.coordinator.revisions_kept = options.revisions_kept;
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
                                                      .logger = logger.get(),
                                                      .once = &once,
                                                      .dial = dial}));
  SY_ASSIGN_OR_RETURN(const std::vector<DeploymentSpec> specs, ReadSpecs(options.deployments));
  SY_ASSIGN_OR_RETURN(const ListenAddress listen, ParseListen(options.listen));
  std::unique_ptr<CoordinatorServer> server;  // outlives the monitor, which sets its health
  CoordinatorHealth health(driver.get(), &clock);
  HealthMonitor monitor([&health] { return health.Look(); });
  SY_ASSIGN_OR_RETURN(const std::unique_ptr<SystemServer> system,
                      OpenSystemPort(options, listen.host, driver.get(), &monitor));
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
  signals.Wait();
  health.SetAccepting(false);
  // The driver first: gRPC's Shutdown waits for streams that only the driver ends.
  const bool ended = driver->Shutdown(kShutdown);
  server->grpc().Shutdown(kShutdown);
  if (!ended) std::quick_exit(0);  // A thread still reads a model; joining it could take minutes.
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  SignalWait signals({SIGTERM, SIGINT});
  RaiseFileLimit();
  CLI::App app("Coordinates the workers of Mixture-of-Experts deployments.");
  Options options;
  app.add_option("--listen", options.listen, "host:port to listen on; port 0: any free port")
      ->capture_default_str();
  app.add_option("--system-port", options.system_port, kSystemPortHelp)
      ->check(CLI::Range(0, kPortMax));
  app.add_option("--store", options.store,
                 "Where plans are stored: sqlite:FILE, or memory, which a restart forgets")
      ->capture_default_str();
  app.add_option("--deployment", options.deployments, "File of deployments to apply at start");
  app.add_option(kDtypeFlag, options.dispatch.dispatcher_output_dtype,
                 "Dtype of rows if a deployment sets none: auto, bf16, fp8, int8 or nvfp4");
  app.add_option(kDeprecatedDtypeFlag, options.dispatch.deepep_dispatcher_output_dtype,
                 absl::StrCat("Deprecated spelling of ", kDtypeFlag));
  app.add_option("--placement", options.placement,
                 absl::StrCat("How experts are placed on workers: ", PlacementNames()))
      ->capture_default_str();
  app.add_option(
         "--stuck-batch", options.stuck_batch_s,
         "Seconds after which a batch that does not end shows that its worker is stuck; plans "
         "do without that worker")
      ->capture_default_str()
      ->check(CLI::Range(1, 86'400));
  app.add_option("--max-deployments", options.max_deployments,
                 "Most deployments at a time; refused ones do not count")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  app.add_option("--revisions-kept", options.revisions_kept,
                 "Revisions kept of each deployment, besides the one that serves")
      ->capture_default_str()
      ->check(CLI::Range(1, 100));
  app.add_option("--log-level", options.log_level, "debug, info, warn, error or off")
      ->capture_default_str();
  // Option names are checked before parsing: CLI11 would accept misspelled dtype options as unknown
  // ones without the hint to the right name.
  for (int i = 1; i < argc; ++i) {
    if (const absl::Status name = CheckOptionName(argv[i]); !name.ok()) return ExitCodeOf(name);
  }
  CLI11_PARSE(app, argc, argv);
  return ExitCodeOf(Run(options, signals));
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) { return switchyard::Main(argc, argv); }
