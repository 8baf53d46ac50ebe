// Runs a program to its end, or to a signal, and keeps what it wrote.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "core/base/clock.h"
#include "harness/child_process.h"
#include "tests/testing/temp_dir.h"

namespace switchyard::testing {

struct ProgramResult {
  int code = -1;   // exit code; -1: it did not exit by itself
  int signal = 0;  // that ended it; 0: none
  std::string out;
  std::string err;
};

class Program {
 public:
  // argv[0] is a path. Errors: those of ChildProcess::Spawn.
  static absl::StatusOr<Program> Start(const std::vector<std::string>& argv);

  // Errors: kUnavailable when it still runs after `timeout`.
  absl::StatusOr<ProgramResult> Wait(Duration timeout);
  // False when its output does not begin so before `timeout`.
  [[nodiscard]] bool WaitForOutput(const std::string& begin, Duration timeout) const;
  [[nodiscard]] ChildProcess& process() { return child_; }

 private:
  Program(std::unique_ptr<TempDir> dir, ChildProcess child)
      : dir_(std::move(dir)), child_(std::move(child)) {}

  std::unique_ptr<TempDir> dir_;
  ChildProcess child_;
};

// Starts `argv` and waits; a failure of either is a failure of the test, with code -1.
ProgramResult RunProgram(const std::vector<std::string>& argv,
                         Duration timeout = std::chrono::seconds(60));

}  // namespace switchyard::testing
