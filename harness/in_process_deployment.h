// A whole deployment in one process: the real coordinator, N real workers and a client, joined by
// the in-process channels and, if not asked otherwise, the loopback transport: then there is no
// socket, no port and no shared memory.
//
// For checks, tests and the first debugging of anything. Not thread-safe; the client is.
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
#include "core/base/log.h"
#include "core/dispatch_mode.h"
#include "core/resolve/dtype_option.h"
#include "services/in_process/session_channel.h"
#include "worker/device/device_backend.h"
#include "worker/expert_node.h"

namespace switchyard {

class LoopbackHub;

struct InProcessOptions {
  std::string checkpoint;  // directory, or "synthetic:..."
  std::string name = "local";
  std::int32_t workers = 4;
  std::string device = "cpu";            // of workers and clients: worker/registry
  std::int32_t max_tokens_per_step = 0;  // 0: the default
  // What is asked for in every phase; unset: what the config planner picks.
  std::optional<DispatchMode> mode = {};
  std::optional<DtypeChoice> dispatcher_output_dtype = {};
  Logger* logger = nullptr;  // outlives the deployment
  // Rows over UCX's mapped rings instead of the loopback transport's.
  bool over_ucx = false;
  // Of each worker; empty: `device`.
  std::function<absl::StatusOr<std::unique_ptr<DeviceBackend>>()> make_device;
};

class InProcessDeployment {
 public:
  // The first epoch follows once all workers have registered; opening a session is kUnavailable
  // (NOT_READY) until then. Errors: those of ApplyDeployment and of making devices.
  static absl::StatusOr<std::unique_ptr<InProcessDeployment>> Start(
      const InProcessOptions& options);
  ~InProcessDeployment();

  // Until the deployment of Start serves, or, once all workers are there, is found to have no plan:
  // that problem is the error (kUnavailable, NOT_READY, which names the rule), at once and not at
  // the end of `timeout`. kUnavailable (NOT_READY) after `timeout` as well.
  absl::Status WaitUntilServes(Duration timeout);

  // A client of its own transport; goes before the deployment.
  absl::StatusOr<std::unique_ptr<Client>> MakeClient();
  [[nodiscard]] Driver& driver() { return *driver_; }
  // Another deployment on the same workers, or the same one with other wishes.
  absl::Status Apply(const DeploymentSpec& spec);
  // One more worker, under the next name.
  absl::Status AddWorker();
  // Ends the worker as a crash would: its links and streams break.
  void KillWorker(std::size_t worker);

 private:
  struct Worker;

  explicit InProcessDeployment(const InProcessOptions& options);
  absl::Status StartAll();
  absl::StatusOr<std::unique_ptr<Transport>> NewTransport(Incarnation incarnation);

  InProcessOptions options_;
  SteadyClock clock_;
  SystemRng rng_;
  std::unique_ptr<LoopbackHub> hub_;
  InProcessWorkers directory_;
  std::unique_ptr<Driver> driver_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

}  // namespace switchyard
