#include "harness/child_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fstream>
#include <poll.h>
#include <signal.h>
#include <sstream>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr std::size_t kLogTail = 2000;  // bytes at the end of the log that an error quotes

// Quotes the end of the log, because the last lines show why a program exited.
std::string TailOf(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  const std::string all = text.str();
  return all.size() <= kLogTail ? all : all.substr(all.size() - kLogTail);
}

// Runs in the child between fork and exec, where only async-signal-safe calls are permitted.
[[noreturn]] void Exec(char* const* argv, int output, int log, pid_t parent) {
  // A group of its own: a Ctrl-C at the terminal must reach the harness only, which ends its
  // children.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // The parent died before prctl, so no signal will arrive.
  dup2(output, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  dup2(null, STDIN_FILENO);
  execv(argv[0], argv);
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Spawn(const std::vector<std::string>& argv,
                                                 const std::string& log_path) {
  if (access(argv[0].c_str(), X_OK) != 0) {
    return MakeError(absl::StatusCode::kNotFound, Reason::kBadRequest,
                     absl::StrCat(argv[0], " does not exist or is not executable; build it first"));
  }
  std::array<int, 2> pipe_ends{};
  // O_APPEND: a restarted worker continues the log of its predecessor.
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0 || pipe2(pipe_ends.data(), O_CLOEXEC) != 0) {
    return MakeError(
        absl::StatusCode::kInternal, Reason::kInternal,
        absl::StrCat("cannot open a log or pipe for ", argv[0], ": ", std::strerror(errno)));
  }
  std::vector<char*> raw;
  for (const std::string& word : argv) raw.push_back(const_cast<char*>(word.c_str()));
  raw.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Exec(raw.data(), pipe_ends[1], log, parent);
  // Close our copy of the write end; otherwise the pipe would never report its end.
  close(pipe_ends[1]);
  close(log);
  if (pid < 0) {
    close(pipe_ends[0]);
    return MakeError(absl::StatusCode::kInternal, Reason::kInternal,
                     absl::StrCat("cannot fork for ", argv[0], ": ", std::strerror(errno)));
  }
  // WaitForLine has a deadline, so its reads must not block.
  fcntl(pipe_ends[0], F_SETFL, O_NONBLOCK);
  return ChildProcess(pid, pipe_ends[0], log_path);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(output_, other.output_);
  std::swap(log_path_, other.log_path_);
  std::swap(buffered_, other.buffered_);
  std::swap(reaped_, other.reaped_);
  std::swap(status_, other.status_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (output_ >= 0) close(output_);
  if (!running()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, &status_, 0);
}

absl::Status ChildProcess::Failure(const std::string& what) const {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady,
                   absl::StrCat(what, "; its log ends:\n", TailOf(log_path_)),
                   {{"pid", absl::StrCat(pid_)}, {"log", log_path_}});
}

absl::StatusOr<std::string> ChildProcess::WaitForLine(const std::string& prefix, Duration timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (true) {
    std::size_t end = 0;
    // One line may hold several reads, and one read several lines.
    while ((end = buffered_.find('\n')) != std::string::npos) {
      const std::string line = buffered_.substr(0, end);
      buffered_.erase(0, end + 1);
      if (line.rfind(prefix, 0) == 0) return line.substr(prefix.size());
    }
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= Duration::zero()) return Failure("a process did not become ready in time");
    pollfd ready{output_, POLLIN, 0};
    poll(&ready, 1, static_cast<int>(left / std::chrono::milliseconds(1)) + 1);
    std::array<char, 512> bytes{};
    const ssize_t got = read(output_, bytes.data(), bytes.size());
    if (got > 0) buffered_.append(bytes.data(), static_cast<std::size_t>(got));
    if (got == 0) return Failure("a process ended before it was ready");
  }
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0 && !reaped_) kill(pid_, signal);
}

void ChildProcess::Reap(int status) {
  reaped_ = true;
  status_ = status;
}

absl::StatusOr<int> ChildProcess::Wait(Duration timeout) {
  // A pidfd can be waited for with a timeout; waitpid cannot.
  if (running()) {
    const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
    pollfd ended{handle, POLLIN, 0};
    poll(&ended, 1, static_cast<int>(timeout / std::chrono::milliseconds(1)));
    close(handle);
  }
  if (running()) return Failure("a process is still running");
  return status_;
}

bool ChildProcess::running() {
  if (pid_ < 0 || reaped_) return false;
  int status = 0;
  const pid_t ended = waitpid(pid_, &status, WNOHANG);
  // Not our child any more: another part of this program has reaped it, and the number may belong
  // to another process by now.
  if (ended < 0 && errno == ECHILD) status = SIGKILL;
  if (ended != 0) Reap(status);
  return !reaped_;
}

}  // namespace switchyard
