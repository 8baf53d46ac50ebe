// A deployment on this machine: one coordinator and N workers as processes of their own, on
// loopback ports that the kernel chose, gone without a trace when the object is.
//
// For demos, checks and tests. Not thread-safe but for KillAll.
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

struct LocalDeploymentOptions {
  std::string bin_dir;         // where switchyard-coordinator and switchyard-worker are
  std::string checkpoint;      // of the model; absolute, or as the workers' directory has it
  std::string name = "local";  // of the deployment
  std::int32_t workers = 4;
  std::int32_t min_workers = 0;  // before the first epoch; 0: all of them
  Duration start_timeout = std::chrono::seconds(60);
  std::vector<std::string> coordinator_flags;  // more of them
  std::vector<std::string> worker_flags;       // of every worker
  // More flags of single workers, by index; shorter than `workers` is fine.
  std::vector<std::vector<std::string>> worker_flags_of;
  // What is asked for in every phase: names of modes and dtypes; empty: what is picked.
  std::string mode;
  std::string dispatcher_output_dtype;
  std::function<void(const std::string&)> progress;  // one line a step; may be empty
};

class LocalDeployment {
 public:
  // Nothing runs before Launch.
  explicit LocalDeployment(LocalDeploymentOptions options) : options_(std::move(options)) {}
  // Ends what still runs.
  ~LocalDeployment();
  // Once. Blocks until every process serves; the first epoch follows once `min_workers` have
  // registered (opening a session is kUnavailable, NOT_READY, until then). Errors: kNotFound for a
  // missing binary; kUnavailable with the log of what did not start, or after KillAll.
  absl::Status Launch();
  // One that has been launched; after an error nothing is left behind.
  static absl::StatusOr<std::unique_ptr<LocalDeployment>> Start(LocalDeploymentOptions options);

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
  // One more worker, under the next id.
  absl::Status AddWorker();
  // Logs and sockets; removed with the object.
  [[nodiscard]] const std::string& directory() const { return directory_; }
  // Kills every process at once and removes the directory; no process starts after it, and the
  // object is only good for destruction. From any thread, at any time, Launch included.
  void KillAll();
  // SIGTERM to the workers, then to the coordinator; what has not drained after `grace` is killed.
  // Errors: kInternal naming the processes that did not exit with 0.
  absl::Status Stop(Duration grace);

 private:
  absl::Status MakeDirectory();
  absl::Status StartCoordinator();
  absl::Status StartWorker(std::size_t worker);
  absl::StatusOr<ChildProcess> Spawn(const std::vector<std::string>& argv, const std::string& name);
  void Say(const std::string& line) const;

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
