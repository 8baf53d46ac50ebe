// One run of switchyard-quantize: command line in, text and an exit code out. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/clock.h"

namespace switchyard::quantize {

// The terminal and signals around a run.
struct Surroundings {
  bool out_is_terminal = false;  // tables instead of JSON
  const Clock* clock = nullptr;
  // Receives the progress, a line that replaces the one before; nullptr: progress is not shown.
  std::function<void(const std::string&)> show_progress;
  // Called after each tensor: true stops the run, which then leaves nothing behind.
  std::function<bool()> interrupted;
};

struct CliResult {
  int exit_code = 0;  // 0 done, 1 refused or failed, 2 wrong command line, 130 interrupted
  std::string out;
  std::string err;
};

// `words`: without the program's name. In JSON an error is an object on `out` as well.
CliResult RunCli(const std::vector<std::string>& words, const Surroundings& surroundings);

}  // namespace switchyard::quantize
