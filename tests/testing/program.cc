#include "tests/testing/program.h"

#include <memory>
#include <sys/wait.h>
#include <thread>
#include <utility>

#include "core/base/status_macros.h"

namespace switchyard::testing {

absl::StatusOr<Program> Program::Start(const std::vector<std::string>& argv) {
  auto dir = std::make_unique<TempDir>();
  dir->Write("out", "");  // There even if the program is ended before the shell is.
  // The shell only redirects; the program takes its place, and its process id.
  std::vector<std::string> shell{"/bin/sh", "-c", R"(exec "$@" >"$0")", dir->Join("out")};
  shell.insert(shell.end(), argv.begin(), argv.end());
  SY_ASSIGN_OR_RETURN(ChildProcess child, ChildProcess::Spawn(shell, dir->Join("err")));
  return Program(std::move(dir), std::move(child));
}

absl::StatusOr<ProgramResult> Program::Wait(Duration timeout) {
  SY_ASSIGN_OR_RETURN(const int status, child_.Wait(timeout));
  ProgramResult result;
  if (WIFEXITED(status)) result.code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
  result.out = ReadBytes(dir_->Join("out"));
  result.err = ReadBytes(dir_->Join("err"));
  return result;
}

bool Program::WaitForOutput(const std::string& begin, Duration timeout) const {
  const auto until = std::chrono::steady_clock::now() + timeout;
  while (std::chrono::steady_clock::now() < until) {
    std::ifstream file(dir_->Join("out"));
    std::string text(begin.size(), ' ');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.gcount() == static_cast<std::streamsize>(begin.size()) && text == begin) return true;
    std::this_thread::yield();
  }
  return false;
}

ProgramResult RunProgram(const std::vector<std::string>& argv, Duration timeout) {
  absl::StatusOr<Program> program = Program::Start(argv);
  if (!program.ok()) {
    ADD_FAILURE() << program.status();
    return {};
  }
  const absl::StatusOr<ProgramResult> result = program->Wait(timeout);
  if (!result.ok()) {
    ADD_FAILURE() << result.status();
    return {};
  }
  return *result;
}

}  // namespace switchyard::testing
