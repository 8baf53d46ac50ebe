// One run of syctl: arguments in, text and an exit code out. A function without process state, so
// that tests can call it. Thread-safe.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/cli/progress_line.h"

namespace switchyard::ctl {

// Properties of standard output.
struct Terminal {
  bool is_terminal = false;
  std::size_t width = 0;          // in characters; 0: unknown
  bool errors_are_shown = false;  // standard error is a terminal as well
};

// Environment variables that count, as main read them.
struct Environment {
  std::string target;         // SYCTL_TARGET
  std::string tls_dir;        // SYCTL_TLS_DIR
  bool no_color = false;      // NO_COLOR is set, or the terminal has no colors
  std::string contexts_path;  // of the file of contexts
};

// Who looks on while a command runs.
struct Viewer {
  // A line on what it waits for. Null: nobody looks.
  std::function<void(const std::string& line)> tell = nullptr;
  // Draws how far that is, in one line that is cleared with nullopt. Null: lines are told.
  std::function<void(const std::optional<ProgressFacts>& facts)> progress = nullptr;
  // A line every ten seconds of a wait, for logs. Null: none.
  std::function<void(const std::string& line)> log = nullptr;
  // Output of a command that does not end by itself. False: nobody reads any more. Null: it shows
  // its first output and ends.
  std::function<bool(const std::string& text)> live = nullptr;
};

// The result of a run.
struct SyctlResult {
  // 0 success, 1 refused or failed, 2 usage error. Of diff: 0 no difference, 1 differences, 2
  // error. Of doctor: 1 a check fails.
  int exit_code = 0;
  std::string out;
  std::string err;
};

// `words`: the arguments without the program's name. With JSON output, an error is also an object
// on `out`.
SyctlResult RunSyctl(const std::vector<std::string>& words, const Terminal& terminal,
                     const Viewer& viewer = {}, const Environment& environment = {});

}  // namespace switchyard::ctl
