// switchyard-quantize: writes a BF16 checkpoint with its experts quantized. quantize/cli.h is the
// program; this file connects it to the terminal and the signals.
#include <cstdio>
#include <signal.h>
#include <unistd.h>

#include "quantize/cli.h"

namespace switchyard::quantize {
namespace {

// SIGINT and SIGTERM are blocked and polled after each tensor, so that an interrupted run removes
// its files.
bool Interrupted() {
  sigset_t pending{};
  sigpending(&pending);
  return sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1;
}

void HoldSignals() {
  sigset_t held{};
  sigemptyset(&held);
  sigaddset(&held, SIGINT);
  sigaddset(&held, SIGTERM);
  sigprocmask(SIG_BLOCK, &held, nullptr);
  // Exceeding a file size limit then fails the write, whose error says what to do, instead of
  // ending the process.
  static_cast<void>(signal(SIGXFSZ, SIG_IGN));
}

int Main(int argc, char** argv) {
  HoldSignals();
  const SteadyClock clock;
  Surroundings around{.out_is_terminal = isatty(STDOUT_FILENO) != 0,
                      .clock = &clock,
                      .show_progress = nullptr,
                      .interrupted = &Interrupted};
  const bool progress = isatty(STDERR_FILENO) != 0;
  if (progress) {
    around.show_progress = [](const std::string& line) {
      std::fprintf(stderr, "\r\033[K%s", line.c_str());
      std::fflush(stderr);
    };
  }
  const CliResult result = RunCli({argv + 1, argv + argc}, around);
  if (progress) std::fputs("\r\033[K", stderr);
  std::fputs(result.out.c_str(), stdout);
  std::fflush(stdout);
  std::fputs(result.err.c_str(), stderr);
  return result.exit_code;
}

}  // namespace
}  // namespace switchyard::quantize

int main(int argc, char** argv) { return switchyard::quantize::Main(argc, argv); }
