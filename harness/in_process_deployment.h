// A whole deployment in one process: the real coordinator, N real workers and a client, connected
// by in-process channels and, by default, the loopback transport. It then needs no sockets, ports
// or shared memory.
//
// For checks, tests and debugging. Not thread-safe, except for the client.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "client/client.h"
#include "coordinator/driver.h"
#include "coordinator/spec/options.h"
#include "core/base/log.h"
#include "core/dispatch_mode.h"
#include "core/resolve/dtype_option.h"
#include "core/tracing/trace_sink.h"
#include "services/in_process/session_channel.h"
#include "worker/device/device_backend.h"
#include "worker/expert_node.h"

namespace switchyard {

class LoopbackHub;

// Options of a deployment in one process.
struct InProcessOptions {
  std::string checkpoint;  // directory, or "synthetic:..."
  std::string name = "local";
  std::int32_t workers = 4;
  std::string device = "cpu";            // of the workers: harness/worker_devices.h
  std::int32_t max_tokens_per_step = 0;  // 0: the default
  // Settings for every phase; if unset, the config planner decides.
  std::optional<DispatchMode> mode = {};
  std::optional<DtypeChoice> dispatcher_output_dtype = {};
  Logger* logger = nullptr;  // must outlive the deployment
  // Use UCX with mapped rings instead of the loopback transport.
  bool over_ucx = false;
  // Creates the device of worker n, from 0; empty: `device`.
  std::function<absl::StatusOr<std::unique_ptr<DeviceBackend>>(std::size_t worker)> make_device;
  // Worker n offers these, as ExpertNodeOptions::wire_dtypes, in turn; empty: all.
  std::vector<std::vector<DispatchDtype>> wire_dtypes = {};
  CoordinatorOptions coordinator = {};
  // Make the tracer of a worker, and the source of tracers of a client; empty: nothing is traced.
  std::function<std::shared_ptr<StepTracer>()> make_tracer = {};
  std::function<std::unique_ptr<TraceSink>()> make_traces = {};
  // Called when the device of worker n has failed for good; in processes, the worker ends then.
  // From the worker's thread: KillWorker later, from another one.
  std::function<void(std::size_t worker, const absl::Status& why)> on_device_fault = {};
};

class InProcessDeployment {
 public:
  // Returns before the first epoch, which follows when all workers have registered. Until then,
  // opening a session fails with kUnavailable (NOT_READY). Errors: those of ApplyDeployment and of
  // creating devices.
  static absl::StatusOr<std::unique_ptr<InProcessDeployment>> Start(
      const InProcessOptions& options);
  ~InProcessDeployment();

  // Waits until the deployment of Start serves. Errors: kUnavailable (NOT_READY) after `timeout`;
  // or earlier, with the rule that refuses it, if all workers have registered and no plan is
  // possible.
  absl::Status WaitUntilServes(Duration timeout);

  // A new client with its own transport, the tensors of whose steps lie on `tensors`; null: memory
  // of the host. Must be destroyed before the deployment.
  absl::StatusOr<std::unique_ptr<Client>> MakeClient(
      std::unique_ptr<DeviceBackend> tensors = nullptr);
  // The coordinator, for tests that inspect its view.
  [[nodiscard]] Driver& driver() { return *driver_; }
  // Applies another deployment on the same workers, or changes this one.
  absl::Status Apply(const DeploymentSpec& spec);
  // Adds a worker with the next name.
  absl::Status AddWorker();
  // Ends a worker like a crash: its links and streams break.
  void KillWorker(std::size_t worker);

 private:
  // A worker with its endpoint and channel.
  struct Worker;

  explicit InProcessDeployment(const InProcessOptions& options);
  // Everything of Start after construction.
  absl::Status StartAll();
  // One transport for each worker and client, as between processes.
  absl::StatusOr<std::unique_ptr<Transport>> NewTransport(Incarnation incarnation);

  InProcessOptions options_;
  // Shared by all parts, as one process has one clock and one source of randomness.
  SteadyClock clock_;
  SystemRng rng_;
  std::unique_ptr<LoopbackHub> hub_;
  // Workers find each other's attachments here instead of by host and port.
  InProcessWorkers directory_;
  std::unique_ptr<Driver> driver_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace switchyard
