// One child process that cannot outlive its parent and says on its standard output when it is
// ready.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "core/base/clock.h"

namespace switchyard {

// Owns the process: the destructor ends it (SIGKILL) and reaps it. It runs in a process group of
// its own, so that a terminal's Ctrl-C reaches the parent alone, and is killed by the kernel when
// the parent dies. Not thread-safe. Linux.
class ChildProcess {
 public:
  // argv[0] is the path of the program. Standard output comes back through a pipe, standard error
  // goes to `log_path`. Errors: kNotFound when the program is not there; kInternal otherwise.
  static absl::StatusOr<ChildProcess> Spawn(const std::vector<std::string>& argv,
                                            const std::string& log_path);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  // The first line of its standard output that begins with `prefix`, without it. Errors:
  // kUnavailable, with the last lines of its log, when it ends or `timeout` passes before.
  absl::StatusOr<std::string> WaitForLine(const std::string& prefix, Duration timeout);
  void Signal(int signal) const;
  // Its exit status as wait(2) gives it, SIGKILL for one that somebody else has reaped;
  // kUnavailable when it is still running after `timeout`.
  absl::StatusOr<int> Wait(Duration timeout);
  [[nodiscard]] bool running();
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  ChildProcess(pid_t pid, int output, std::string log_path)
      : pid_(pid), output_(output), log_path_(std::move(log_path)) {}
  void Reap(int status);
  [[nodiscard]] absl::Status Failure(const std::string& what) const;

  pid_t pid_ = -1;  // -1: none
  int output_ = -1;
  std::string log_path_;
  std::string buffered_;
  bool reaped_ = false;
  int status_ = 0;
};

}  // namespace switchyard
