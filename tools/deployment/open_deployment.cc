#include "tools/deployment/open_deployment.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/client.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/resolve/dtype_option.h"
#include "core/resolve/mode_resolver.h"
#include "harness/in_process_deployment.h"
#include "harness/interrupt_guard.h"
#include "harness/local_deployment.h"
#include "harness/worker_devices.h"
#include "tools/deployment/deployment_moe.h"

namespace switchyard::qwen3_moe {
namespace {

constexpr absl::string_view kGroup = "group";
// Longer than AgentOptions::leave_timeout, after which a worker ends by itself.
constexpr Duration kStopGrace = std::chrono::seconds(27);

// A deployment of processes and the guard that ends it on a signal. The guard is destroyed last, so
// that a signal during shutdown leaves no process behind.
struct OwnProcesses {
  std::unique_ptr<LocalDeployment> deployment;
  std::unique_ptr<InterruptGuard> guard;
  bool launched = false;
  ~OwnProcesses() {
    // A worker that does not drain in time is killed. This does not change the result of the run.
    if (launched) deployment->Stop(kStopGrace).IgnoreError();
    deployment->KillAll();
    guard.reset();
  }
};

struct OwnLoopback {
  std::unique_ptr<Logger> logger;
  std::unique_ptr<InProcessDeployment> deployment;
};

// Only the service programs of the same build match this program's protocol.
std::string ProgramFolder() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? "." : path.parent_path().string();
}

absl::StatusOr<ClientOptions> ClientFor(const MoeOptions& options, const std::string& coordinator,
                                        const std::string& gateway) {
  ClientOptions client;
  client.tls_dir = options.tls_dir;
  if (options.transport == "gateway") {
    client.gateway = gateway;
    return client;
  }
  client.coordinator = coordinator;
  if (options.transport != kGroup) {
    TransportChoiceFromName(options.transport, &client.transport);
    return client;
  }
  const std::string of_first = options.target.empty() ? DeviceOfWorker(options.device, 0) : "";
  client.device = options.client_device.empty() ? of_first : options.client_device;
  // Its tensors are memory of the host, as this program's are.
  if (client.device == "cpu") client.device.clear();
  return client;
}

// The path that every row must have taken; empty if the transport permits several.
std::string PathFor(const std::string& transport) {
  if (transport == "tcp") return "messages";
  if (transport == "shm") return "mapped";
  return transport == "loopback" ? "inproc" : "";
}

absl::StatusOr<DtypeChoice> ChoiceOf(const std::string& name) {
  SY_ASSIGN_OR_RETURN(const std::optional<DispatchDtype> dtype, ParseDtypeChoice(name, kDtypeFlag));
  return dtype ? static_cast<DtypeChoice>(static_cast<int>(*dtype) + 1) : DtypeChoice::kAuto;
}

// The mode in which to plan every phase. For auto it is unset, because the planner's defaults
// (prefill normal, decode low_latency) are what auto means.
std::optional<DispatchMode> PlannedMode(std::optional<ModeChoice> choice) {
  if (!choice || *choice == ModeChoice::kAuto) return std::nullopt;
  return ModeOfStep(*choice, {});
}

absl::StatusOr<std::unique_ptr<MoeProvider>> OpenLoopback(const std::string& model_dir,
                                                          const MoeOptions& options,
                                                          DeploymentMoeOptions moe) {
  auto own = std::make_shared<OwnLoopback>();
  // Only errors: other log lines would mix with the program's output.
  own->logger = std::make_unique<Logger>("loopback", LogLevel::kError);
  InProcessOptions in_process;
  in_process.checkpoint = model_dir;
  in_process.workers = options.workers;
  in_process.device = options.device;
  in_process.logger = own->logger.get();
  in_process.mode = PlannedMode(moe.mode);
  if (!options.dispatcher_output_dtype.empty()) {
    SY_ASSIGN_OR_RETURN(in_process.dispatcher_output_dtype,
                        ChoiceOf(options.dispatcher_output_dtype));
  }
  SY_ASSIGN_OR_RETURN(own->deployment, InProcessDeployment::Start(in_process));
  SY_RETURN_IF_ERROR(own->deployment->WaitUntilServes(moe.ready_timeout));
  SY_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, own->deployment->MakeClient());
  moe.keep_alive = own;
  return OpenDeploymentMoe(std::move(client), moe);
}

absl::StatusOr<std::unique_ptr<MoeProvider>> OpenProcesses(const std::string& model_dir,
                                                           const MoeOptions& options,
                                                           DeploymentMoeOptions moe) {
  auto own = std::make_shared<OwnProcesses>();
  LocalDeploymentOptions local;
  local.bin_dir = options.bin_dir.empty() ? ProgramFolder() : options.bin_dir;
  local.checkpoint = std::filesystem::absolute(model_dir).string();
  local.workers = options.workers;
  local.worker_flags = {"--net-devices", "lo"};
  local.devices = options.device;
  if (const auto mode = PlannedMode(moe.mode)) local.mode = std::string(DispatchModeName(*mode));
  local.dispatcher_output_dtype = options.dispatcher_output_dtype;
  // Created before any other thread, so that all threads inherit the blocked signals.
  own->guard = std::make_unique<InterruptGuard>();
  own->deployment = std::make_unique<LocalDeployment>(std::move(local));
  own->guard->OnSignal([raw = own->deployment.get()] { raw->KillAll(); });
  SY_RETURN_IF_ERROR(own->deployment->Launch());
  own->launched = true;
  SY_ASSIGN_OR_RETURN(
      ClientOptions client_options,
      ClientFor(options, own->deployment->coordinator(), own->deployment->worker_address(0)));
  client_options.net_devices = "lo";
  SY_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Connect(client_options));
  moe.keep_alive = own;
  return OpenDeploymentMoe(std::move(client), moe);
}

}  // namespace

absl::StatusOr<std::unique_ptr<MoeProvider>> OpenDeployment(const std::string& model_dir,
                                                            const MoeOptions& options) {
  if (options.record_amax && options.transport == "gateway") {
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported,
                     "magnitudes cannot be recorded over a gateway; use another --transport");
  }
  DeploymentMoeOptions moe;
  moe.deployment = options.deployment;
  moe.served_model = options.served_model;
  moe.record_amax = options.record_amax;
  moe.retry_for = options.retry_for;
  moe.mode = ModeChoiceFromName(options.mode);
  moe.in_lockstep = options.transport == kGroup;
  moe.expected_path = PathFor(options.transport);
  moe.description = absl::StrCat(
      options.target.empty() ? absl::StrCat("local deployment of ", options.workers, " workers")
                             : absl::StrCat("deployment at ", options.target),
      ", ", options.transport, options.mode.empty() ? "" : ", ", options.mode,
      options.dispatcher_output_dtype.empty() ? "" : ", wire dtype ",
      options.dispatcher_output_dtype);
  if (!options.target.empty()) {
    if (options.transport == "loopback") {
      return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest,
                       "loopback only works within one process; omit --target");
    }
    SY_ASSIGN_OR_RETURN(const ClientOptions client_options,
                        ClientFor(options, options.target, options.target));
    SY_ASSIGN_OR_RETURN(std::unique_ptr<Client> client, Client::Connect(client_options));
    return OpenDeploymentMoe(std::move(client), moe);
  }
  if (options.transport == "loopback") return OpenLoopback(model_dir, options, std::move(moe));
  return OpenProcesses(model_dir, options, std::move(moe));
}

}  // namespace switchyard::qwen3_moe
