// syctl: the operator's tool. See ctl/syctl.h.
#include <cstdio>
#include <optional>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>

#include "core/cli/process_end.h"
#include "core/cli/progress_line.h"
#include "ctl/contexts.h"
#include "ctl/syctl.h"
#include "services/config/config_file.h"

int main(int argc, char** argv) {
  switchyard::KeepTlsForThreads();
  switchyard::ctl::Terminal terminal;
  terminal.is_terminal = isatty(STDOUT_FILENO) != 0;
  winsize size{};
  // The width stays 0, which means "do not wrap", when the output is a pipe.
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) terminal.width = size.ws_col;
  terminal.errors_are_shown = isatty(STDERR_FILENO) != 0;
  const auto variable = [](const char* name) {
    return switchyard::EnvironmentVariable(name).value_or("");
  };
  switchyard::ctl::Environment environment;
  environment.target = variable("SYCTL_TARGET");
  environment.tls_dir = variable("SYCTL_TLS_DIR");
  environment.no_color = !variable("NO_COLOR").empty() || variable("TERM") == "dumb";
  environment.contexts_path =
      switchyard::ctl::ContextsPath(variable("XDG_CONFIG_HOME"), variable("HOME"));
  switchyard::ctl::Viewer viewer;
  const auto line = [](const std::string& text) { std::fprintf(stderr, "%s\n", text.c_str()); };
  switchyard::ProgressLine progress(STDERR_FILENO);
  if (!terminal.errors_are_shown) {
    viewer.log = line;
  } else {
    viewer.tell = line;
  }
  if (switchyard::ProgressLine::IsPossible(STDERR_FILENO, variable("TERM"))) {
    viewer.progress = [&progress](const std::optional<switchyard::ProgressFacts>& facts) {
      facts ? progress.Draw(*facts) : progress.Clear();
    };
  }
  viewer.live = [](const std::string& text) {
    return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  };
  const switchyard::ctl::SyctlResult result =
      switchyard::ctl::RunSyctl({argv + 1, argv + argc}, terminal, viewer, environment);
  std::fputs(result.out.c_str(), stdout);
  // Flushed first, so that the order on a terminal is output, then errors.
  std::fflush(stdout);
  std::fputs(result.err.c_str(), stderr);
  return result.exit_code;
}
