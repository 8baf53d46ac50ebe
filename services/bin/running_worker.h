// A worker with all its parts: what switchyard-worker runs until a signal ends it, and what an
// engine hosts beside its own work (client/switchyard_worker.h).
//
//   Start -> serves sources, loads what the coordinator assigns -> on_end or not -> End
//
// It touches nothing of the process: no signals, no limits, no environment, no standard output.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "core/base/log.h"
#include "core/control_messages.h"
#include "services/bin/worker_options.h"
#include "worker/collective/source_rank.h"
#include "worker/device/device_backend.h"

namespace switchyard {

// Makes the device of the experts from the value of --device, as MakeDevice does.
using MakeDeviceFunction =
    std::function<absl::StatusOr<std::unique_ptr<DeviceBackend>>(absl::string_view, Logger*)>;

class RunningWorker {
 public:
  struct Surroundings {
    MakeDeviceFunction make_device;
    Logger* logger = nullptr;  // outlives the worker
    // The endpoint of the system port, if there is one. It answers from now on, also while the
    // device and its libraries take their time.
    std::function<void(const std::string& endpoint)> on_system_port = [](const std::string&) {};
    // From any thread, at least once: the coordinator has refused or released this worker, or its
    // device has failed. It serves nothing any more, and End says why. Returns quickly.
    std::function<void()> on_end = [] {};
  };

  // Takes as long as making the device; does not wait for the coordinator. `settings` were read by
  // ReadOptions. Errors: those of OpenSecurity, Listener::Bind, `make_device`, MakeTransport and
  // ExpertNode::Create; kInvalidArgument (BAD_CONFIG) for an address that no peer can dial.
  static absl::StatusOr<std::unique_ptr<RunningWorker>> Start(const WorkerSettings& settings,
                                                              Surroundings surroundings);
  // As End.
  ~RunningWorker();
  RunningWorker(const RunningWorker&) = delete;
  RunningWorker& operator=(const RunningWorker&) = delete;

  [[nodiscard]] std::string endpoint() const;  // of gRPC, as it listens
  // For clients of this process. It may outlive the worker.
  [[nodiscard]] std::shared_ptr<RankHost> rank_host() const;
  // How far loading is. Any thread, before End.
  [[nodiscard]] Heartbeat MakeHeartbeat() const;
  // Leaves, unless it serves nothing any more: the coordinator moves its experts, for at most
  // the sum of WorkerSettings::leave_timeout and leave_alone_timeout. Then stops all parts. OK: it
  // has left, or was told to end. Once; later calls return the same. One thread at a time.
  absl::Status End();

 private:
  class Parts;
  explicit RunningWorker(std::unique_ptr<Parts> parts);

  std::unique_ptr<Parts> parts_;  // null: ended
  std::optional<absl::Status> end_;
};

}  // namespace switchyard
