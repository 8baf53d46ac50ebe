// A child process that cannot outlive its parent and reports on its standard output that it is
// ready.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"

namespace switchyard {

// Owns the process: the destructor kills and reaps it. The process runs in its own process group,
// so that Ctrl-C in a terminal only reaches the parent, which can then shut down in order. The
// kernel kills it when the parent dies. Not thread-safe. Only for Linux.
class ChildProcess {
 public:
  // argv[0] is the path of the program. Standard output is read through a pipe, standard error goes
  // to `log_path`. Errors: kNotFound if the program does not exist; kInternal otherwise.
  static absl::StatusOr<ChildProcess> Spawn(const std::vector<std::string>& argv,
                                            const std::string& log_path);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  // The first line of its standard output that starts with `prefix`, without the prefix. Errors:
  // kUnavailable with the end of its log if it exits or `timeout` passes before.
  absl::StatusOr<std::string> WaitForLine(const std::string& prefix, Duration timeout);
  // Sends a signal, unless the process has been reaped.
  void Signal(int signal) const;
  // Its exit status as in wait(2), or SIGKILL if another part of this program has reaped it.
  // Errors: kUnavailable if it is still running after `timeout`.
  absl::StatusOr<int> Wait(Duration timeout);
  // Whether it still runs; reaps it if it has ended.
  [[nodiscard]] bool running();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  ChildProcess(pid_t pid, int output, std::string log_path)
      : pid_(pid), output_(output), log_path_(std::move(log_path)) {}
  // Records the exit status; no later call may signal the pid.
  void Reap(int status);
  // An error with `what` and the end of the log.
  [[nodiscard]] absl::Status Failure(const std::string& what) const;

  pid_t pid_ = -1;  // -1: none
  int output_ = -1;
  std::string log_path_;
  std::string buffered_;
  bool reaped_ = false;
  int status_ = 0;
};

}  // namespace switchyard
