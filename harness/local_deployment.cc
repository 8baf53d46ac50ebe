#include "harness/local_deployment.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include <stdlib.h>

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "harness/worker_devices.h"

namespace switchyard {
namespace {

// Each program prints this prefix and its "host:port" to standard output once it listens.
constexpr char kReadyPrefix[] = "ready ";
constexpr Duration kKillWait = std::chrono::seconds(5);

std::string WorkerName(std::size_t worker) { return absl::StrCat("w", worker); }

// A double-quoted YAML (and JSON) string, because a path may contain any character.
std::string Quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

// The processes' folder is this one's, but a path in the file belongs to the file's folder.
// "synthetic:..." is no path.
std::string CheckpointFromHere(const std::string& checkpoint) {
  const std::size_t end = checkpoint.find_first_of("/:");
  if (end != std::string::npos && checkpoint[end] == ':') return checkpoint;
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(checkpoint, error);
  return error ? checkpoint : path.lexically_normal().string();
}

bool Contains(const std::vector<std::string>& flags, absl::string_view flag) {
  return std::find(flags.begin(), flags.end(), flag) != flags.end();
}

// The logs are files, where a program would write JSON, but people read them.
void LogForPeople(const std::vector<std::string>& flags, std::vector<std::string>* argv) {
  if (!Contains(flags, "--log-format")) argv->insert(argv->end(), {"--log-format", "text"});
}

absl::Status Killed() {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kSessionClosed,
                   "the deployment was killed while it started");
}

}  // namespace

absl::StatusOr<std::unique_ptr<LocalDeployment>> LocalDeployment::Start(
    LocalDeploymentOptions options) {
  auto deployment = std::make_unique<LocalDeployment>(std::move(options));
  SY_RETURN_IF_ERROR(deployment->Launch());
  return deployment;
}

absl::Status LocalDeployment::Launch() {
  SY_RETURN_IF_ERROR(MakeDirectory());
  // Port 0: the kernel chooses, so that parallel tests cannot collide.
  SY_RETURN_IF_ERROR(StartCoordinator(options_.host + ":0"));
  for (std::size_t w = 0; w < static_cast<std::size_t>(options_.workers); ++w) {
    SY_RETURN_IF_ERROR(StartWorker(w));
  }
  return absl::OkStatus();
}

absl::Status LocalDeployment::MakeDirectory() {
  const MutexLock lock(mutex_);
  if (killed_) return Killed();
  std::error_code error;
  const std::string base = std::filesystem::temp_directory_path(error).string();
  std::string pattern = absl::StrCat(base, "/switchyard-XXXXXX");
  if (error || mkdtemp(pattern.data()) == nullptr) {
    return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                     absl::StrCat("cannot create a directory for logs in ", base));
  }
  directory_ = pattern;
  std::ofstream file(directory_ + "/deployment.yaml");
  file << "name: " << Quoted(options_.name) << "\n"
       << "checkpoint: " << Quoted(CheckpointFromHere(options_.checkpoint)) << "\n"
       << "min_workers: " << (options_.min_workers > 0 ? options_.min_workers : options_.workers)
       << "\n";
  if (!options_.dispatcher_output_dtype.empty()) {
    file << "dispatcher_output_dtype: " << Quoted(options_.dispatcher_output_dtype) << "\n";
  }
  if (!options_.mode.empty()) {
    file << "phases:\n";
    for (const char* phase : {"prefill", "decode", "mixed"}) {
      file << "  - {phase: " << phase << ", mode: " << Quoted(options_.mode) << "}\n";
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<ChildProcess> LocalDeployment::Spawn(const std::vector<std::string>& argv,
                                                    const std::string& name) {
  // Under the lock, so that KillAll either sees the new process or prevents it.
  const MutexLock lock(mutex_);
  if (killed_) return Killed();
  SY_ASSIGN_OR_RETURN(ChildProcess process,
                      ChildProcess::Spawn(argv, absl::StrCat(directory_, "/", name, ".log")));
  // A pidfd names this process for good; a number may be given to another one.
  const auto handle = static_cast<int>(syscall(SYS_pidfd_open, process.pid(), 0));
  if (handle < 0) {
    return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                     absl::StrCat("cannot get a pidfd of ", argv[0], ": ", std::strerror(errno)));
  }
  handles_.push_back(handle);
  return process;
}

absl::Status LocalDeployment::RestartCoordinator() {
  return StartCoordinator(coordinator_address_);
}

absl::Status LocalDeployment::StartCoordinator(const std::string& listen) {
  std::vector<std::string> argv{options_.bin_dir + "/switchyard-coordinator", "--listen", listen,
                                "--deployment", directory_ + "/deployment.yaml"};
  const auto& flags = options_.coordinator_flags;
  // The deployment ends with this object, so its plans need no file.
  if (!Contains(flags, "--store")) argv.insert(argv.end(), {"--store", "memory"});
  LogForPeople(flags, &argv);
  argv.insert(argv.end(), flags.begin(), flags.end());
  SY_ASSIGN_OR_RETURN(ChildProcess process, Spawn(argv, "coordinator"));
  coordinator_ = std::make_unique<ChildProcess>(std::move(process));
  SY_ASSIGN_OR_RETURN(coordinator_address_,
                      coordinator_->WaitForLine(kReadyPrefix, options_.start_timeout));
  ReportProgress(
      absl::StrCat("coordinator ", coordinator_address_, " (pid ", coordinator_->pid(), ")"));
  return absl::OkStatus();
}

absl::Status LocalDeployment::StartWorker(std::size_t worker) {
  std::vector<std::string> argv{options_.bin_dir + "/switchyard-worker",
                                "--listen",
                                options_.host + ":0",
                                "--coordinator",
                                coordinator_address_,
                                "--id",
                                WorkerName(worker)};
  LogForPeople(options_.worker_flags, &argv);
  argv.insert(argv.end(), options_.worker_flags.begin(), options_.worker_flags.end());
  if (!options_.flags_in_turn.empty()) {
    const auto& own = options_.flags_in_turn[worker % options_.flags_in_turn.size()];
    argv.insert(argv.end(), own.begin(), own.end());
  }
  if (!options_.devices.empty()) {
    argv.insert(argv.end(), {"--device", DeviceOfWorker(options_.devices, worker)});
  }
  SY_ASSIGN_OR_RETURN(ChildProcess process, Spawn(argv, WorkerName(worker)));
  SY_ASSIGN_OR_RETURN(const std::string address,
                      process.WaitForLine(kReadyPrefix, options_.start_timeout));
  ReportProgress(
      absl::StrCat("worker ", WorkerName(worker), " ", address, " (pid ", process.pid(), ")"));
  // Restarted workers keep their index, so that addresses and flags still match.
  if (worker < workers_.size()) {
    workers_[worker] = std::move(process);
    worker_addresses_[worker] = address;
  } else {
    workers_.push_back(std::move(process));
    worker_addresses_.push_back(address);
  }
  return absl::OkStatus();
}

LocalDeployment::~LocalDeployment() {
  KillAll();
  workers_.clear();
  coordinator_.reset();
}

// Uses only pidfds, because another thread may be using a ChildProcess in Launch.
void LocalDeployment::KillAll() {
  const MutexLock lock(mutex_);
  killed_ = true;
  for (const int handle : handles_) syscall(SYS_pidfd_send_signal, handle, SIGKILL, nullptr, 0);
  for (const int handle : handles_) {
    siginfo_t ended{};
    // Reap it here, because this process may end next. An error means that its owner has already
    // reaped it.
    waitid(P_PIDFD, static_cast<id_t>(handle), &ended, WEXITED);
    close(handle);
  }
  handles_.clear();
  std::error_code ignored;  // At worst, a log stays in the temporary directory.
  if (!directory_.empty()) std::filesystem::remove_all(directory_, ignored);
}

absl::Status LocalDeployment::AddWorker() { return StartWorker(workers_.size()); }

absl::Status LocalDeployment::RestartWorker(std::size_t worker) {
  if (workers_[worker].running()) {
    return MakeError(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest,
                     absl::StrCat(WorkerName(worker), " is still running; end it first"));
  }
  return StartWorker(worker);
}

absl::Status LocalDeployment::Stop(Duration grace) {
  std::vector<std::string> bad;
  const auto end = [&](ChildProcess& process, const std::string& name) {
    absl::StatusOr<int> status = process.Wait(grace);
    if (!status.ok()) {
      process.Signal(SIGKILL);
      status = process.Wait(kKillWait);
    }
    if (!status.ok() || !WIFEXITED(*status) || WEXITSTATUS(*status) != 0) bad.push_back(name);
  };
  // All at once: one after the other, the coordinator would move experts to workers that leave
  // next.
  for (ChildProcess& worker : workers_) worker.Signal(SIGTERM);
  for (std::size_t w = 0; w < workers_.size(); ++w) end(workers_[w], WorkerName(w));
  // The coordinator goes last, because workers need it to leave in order.
  coordinator_->Signal(SIGTERM);
  end(*coordinator_, "coordinator");
  if (bad.empty()) return absl::OkStatus();
  return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                   absl::StrCat("did not exit with 0: ", absl::StrJoin(bad, ", ")));
}

void LocalDeployment::ReportProgress(const std::string& line) const {
  if (options_.progress) options_.progress(line);
}

}  // namespace switchyard
