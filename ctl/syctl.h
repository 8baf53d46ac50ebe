// One run of syctl: arguments in, text and an exit code out. A function without process state, so
// that tests can call it. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace switchyard::ctl {

// Properties of standard output.
struct Terminal {
  bool is_terminal = false;
  std::size_t width = 0;  // in characters; 0: unknown
};

// The result of a run. Nothing is printed before the run has ended.
struct SyctlResult {
  int exit_code = 0;  // 0 success, 1 refused or failed, 2 usage error
  std::string out;
  std::string err;
};

// `words`: the arguments without the program's name. With JSON output, an error is also an object
// on `out`.
SyctlResult RunSyctl(const std::vector<std::string>& words, const Terminal& terminal);

}  // namespace switchyard::ctl
