// syctl: the operator's tool. See ctl/syctl.h.
#include <cstdio>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>

#include "ctl/syctl.h"

int main(int argc, char** argv) {
  switchyard::ctl::Terminal terminal;
  terminal.is_terminal = isatty(STDOUT_FILENO) != 0;
  winsize size{};
  // The width stays 0, which means "do not wrap", when the output is a pipe.
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) terminal.width = size.ws_col;
  switchyard::ctl::Viewer viewer;
  if (isatty(STDERR_FILENO) != 0) {
    viewer.tell = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  }
  viewer.live = [](const std::string& text) {
    return std::fputs(text.c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  };
  const switchyard::ctl::SyctlResult result =
      switchyard::ctl::RunSyctl({argv + 1, argv + argc}, terminal, viewer);
  std::fputs(result.out.c_str(), stdout);
  // Flushed first, so that the order on a terminal is output, then errors.
  std::fflush(stdout);
  std::fputs(result.err.c_str(), stderr);
  return result.exit_code;
}
