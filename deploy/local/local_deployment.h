// A deployment on this machine: one coordinator and N workers as processes of their own, on
// loopback ports that the kernel chose, gone without a trace when the object is.
//
// For demos, checks and tests. Not thread-safe.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "deploy/local/child_process.h"

namespace switchyard {

struct LocalDeploymentOptions {
  std::string bin_dir;         // where switchyard-coordinator and switchyard-worker are
  std::string checkpoint;      // of the model; absolute, or as the workers' directory has it
  std::string name = "local";  // of the deployment
  std::int32_t workers = 4;
  Duration start_timeout = std::chrono::seconds(60);
  std::vector<std::string> coordinator_flags;  // more of them
  std::vector<std::string> worker_flags;       // of every worker
  // More flags of single workers, by index; shorter than `workers` is fine.
  std::vector<std::vector<std::string>> worker_flags_of;
  std::function<void(const std::string&)> progress;  // one line a step; may be empty
};

class LocalDeployment {
 public:
  // Blocks until every process serves; the first epoch follows once all workers have registered
  // (opening a session is kUnavailable, NOT_READY, until then). Errors: kNotFound for a missing
  // binary; kUnavailable with the log of what did not start. Nothing is left behind then.
  static absl::StatusOr<std::unique_ptr<LocalDeployment>> Start(LocalDeploymentOptions options);
  // Ends what still runs.
  ~LocalDeployment();

  [[nodiscard]] const std::string& coordinator() const {
    return coordinator_address_;
  }  // "host:port"
  [[nodiscard]] const std::string& worker_address(std::size_t worker) const {
    return worker_addresses_[worker];
  }
  [[nodiscard]] ChildProcess& coordinator_process() { return *coordinator_; }
  [[nodiscard]] ChildProcess& worker_process(std::size_t worker) { return workers_[worker]; }
  [[nodiscard]] std::size_t workers() const { return workers_.size(); }
  // Starts a worker again under the same id, after it has ended.
  absl::Status RestartWorker(std::size_t worker);
  // Logs and sockets; removed with the object.
  [[nodiscard]] const std::string& directory() const { return directory_; }
  // Kills every process at once and removes the directory; the object is only good for destruction
  // then. From any thread, when no other call is running or will come.
  void KillAll();
  // SIGTERM to the workers, then to the coordinator; what has not drained after `grace` is killed.
  // Errors: kInternal naming the processes that did not exit with 0.
  absl::Status Stop(Duration grace);

 private:
  explicit LocalDeployment(LocalDeploymentOptions options) : options_(std::move(options)) {}
  absl::Status StartAll();
  absl::Status StartCoordinator();
  absl::Status StartWorker(std::size_t worker);
  void Say(const std::string& line) const;

  LocalDeploymentOptions options_;
  std::string directory_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::string coordinator_address_;
  std::vector<ChildProcess> workers_;
  std::vector<std::string> worker_addresses_;
};

}  // namespace switchyard
