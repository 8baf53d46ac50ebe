#include "services/bin/bin_support.h"

#include <cstdio>
#include <sys/resource.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {
namespace {

constexpr int kPortMax = 65535;

absl::Status BadOption(const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig, what);
}

}  // namespace

SignalWait::SignalWait(std::initializer_list<int> signals) {
  sigemptyset(&set_);
  for (const int signal : signals) sigaddset(&set_, signal);
  // Threads inherit the mask, so no thread of a library runs a handler.
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

void SignalWait::Wait() {
  int signal = 0;
  sigwait(&set_, &signal);
}

// A signal to this process, because sigwait cannot wait for anything else.
void SignalWait::Raise() { kill(getpid(), SIGTERM); }

absl::StatusOr<std::unique_ptr<Logger>> MakeLogger(const std::string& process,
                                                   const std::string& level) {
  LogLevel parsed = LogLevel::kInfo;
  if (!LogLevelFromName(level, &parsed)) {
    return BadOption(
        absl::StrCat("unknown log level \"", level, "\"; use debug, info, warn, error or off"));
  }
  return std::make_unique<Logger>(process, parsed);
}

absl::StatusOr<ListenAddress> ParseListen(const std::string& text) {
  // The last colon, because the host may be an IPv6 address.
  const std::size_t colon = text.rfind(':');
  ListenAddress address;
  if (colon == std::string::npos || colon == 0 ||
      !absl::SimpleAtoi(text.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > kPortMax) {
    return BadOption(absl::StrCat("\"", text, "\" is not \"host:port\""));
  }
  address.host = text.substr(0, colon);
  return address;
}

std::uint64_t RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  // Refused where the hard limit is above what the kernel allows; the old limit then stays.
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

int ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return 0;
  // Straight to stderr: the logger may not exist yet, and its level could hide the reason.
  std::fprintf(stderr, "%s (%s, %s)\n", std::string(status.message()).c_str(),
               absl::StatusCodeToString(status.code()).c_str(),
               std::string(ReasonName(ReasonOf(status))).c_str());
  return 1;
}

}  // namespace switchyard
