// One run of syctl: words in, text and an exit code out. Thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace switchyard::ctl {

// Where standard output goes.
struct Terminal {
  bool is_terminal = false;
  std::size_t width = 0;  // in characters; 0: not known
};

struct SyctlResult {
  int exit_code = 0;  // 0 done, 1 refused or failed, 2 the words are wrong
  std::string out;
  std::string err;
};

// `words`: without the program's name. In JSON an error is an object on `out` as well.
SyctlResult RunSyctl(const std::vector<std::string>& words, const Terminal& terminal);

}  // namespace switchyard::ctl
