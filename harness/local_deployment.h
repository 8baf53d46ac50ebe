// A deployment on this machine: one coordinator and N workers as separate processes, on loopback
// ports that the kernel chooses. The destructor ends all processes and removes all files.
//
// For demos, checks and tests. Not thread-safe, except for KillAll.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/mutex.h"
#include "harness/child_process.h"

namespace switchyard {

// Options of a deployment; those without comment are the ones of the services.
struct LocalDeploymentOptions {
  std::string bin_dir;             // folder of switchyard-coordinator and switchyard-worker
  std::string checkpoint;          // absolute, or relative to the workers' directory
  std::string name = "local";      // name of the deployment
  std::string host = "127.0.0.1";  // where all processes listen
  std::int32_t workers = 4;
  std::int32_t min_workers = 0;  // before the first epoch; 0: all of them
  // Long enough for a machine under load; a process that is not ready by then is broken.
  Duration start_timeout = std::chrono::seconds(60);
  std::vector<std::string> coordinator_flags;  // additional flags
  std::vector<std::string> worker_flags;       // additional flags of every worker
  // Additional flags of single workers: of the first, the second and so on, in turn.
  std::vector<std::vector<std::string>> flags_in_turn;
  std::string devices;  // as in harness/worker_devices.h; empty: the workers' default
  // Names of the mode and dtype for every phase; if empty, the config planner decides.
  std::string mode;
  std::string dispatcher_output_dtype;
  std::function<void(const std::string&)> progress;  // called with one line per step; may be empty
};

class LocalDeployment {
 public:
  // Does not start any process; Launch does.
  explicit LocalDeployment(LocalDeploymentOptions options) : options_(std::move(options)) {}
  // Kills the processes that still run.
  ~LocalDeployment();
  // Starts the processes and blocks until each one listens. May be called once. The first epoch
  // follows when `min_workers` have registered; until then, opening a session fails with
  // kUnavailable (NOT_READY). Errors: kNotFound for a missing binary; kUnavailable with the log of
  // the process that did not start, or after KillAll.
  absl::Status Launch();
  // Creates and launches a deployment. After an error, no process and no file is left.
  static absl::StatusOr<std::unique_ptr<LocalDeployment>> Start(LocalDeploymentOptions options);

  [[nodiscard]] const std::string& coordinator() const {
    return coordinator_address_;
  }  // "host:port"
  [[nodiscard]] const std::string& worker_address(std::size_t worker) const {
    return worker_addresses_[worker];
  }
  // The processes, for drills that stop or kill single ones.
  [[nodiscard]] ChildProcess& coordinator_process() { return *coordinator_; }
  [[nodiscard]] ChildProcess& worker_process(std::size_t worker) { return workers_[worker]; }
  [[nodiscard]] std::size_t workers() const { return workers_.size(); }
  // Starts the coordinator again, on the same port, after it has ended. What it knows is what its
  // `--store` keeps.
  absl::Status RestartCoordinator();
  // Starts a worker again under the same id after it has ended.
  absl::Status RestartWorker(std::size_t worker);
  // Adds a worker with the next id.
  absl::Status AddWorker();
  // Folder of the logs and the deployment file; removed by the destructor.
  [[nodiscard]] const std::string& directory() const { return directory_; }
  // Kills every process immediately and removes the directory. No process starts after it; the
  // object can only be destroyed then. Callable from any thread at any time, even during Launch.
  void KillAll();
  // Sends SIGTERM to the workers, then to the coordinator, and kills the processes that have not
  // ended after `grace`. Errors: kInternal with the processes that did not exit with 0.
  absl::Status Stop(Duration grace);

 private:
  // Creates the directory for logs and writes the deployment file.
  absl::Status MakeDirectory();
  absl::Status StartCoordinator(const std::string& listen);
  absl::Status StartWorker(std::size_t worker);
  // Starts a program and registers it for KillAll.
  absl::StatusOr<ChildProcess> Spawn(const std::vector<std::string>& argv, const std::string& name);
  void ReportProgress(const std::string& line) const;

  LocalDeploymentOptions options_;
  Mutex mutex_;
  bool killed_ SY_GUARDED_BY(mutex_) = false;  // nothing is made any more
  std::string directory_;                      // made under mutex_
  // pidfds: a pid may be another's by now
  std::vector<int> handles_ SY_GUARDED_BY(mutex_);
  std::unique_ptr<ChildProcess> coordinator_;
  std::string coordinator_address_;
  std::vector<ChildProcess> workers_;
  std::vector<std::string> worker_addresses_;
};

}  // namespace switchyard
