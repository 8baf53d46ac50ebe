#include "services/bin/bin_support.h"

#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <set>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include <ifaddrs.h>
#include <netdb.h>

#include "core/base/error.h"

namespace switchyard {
namespace {

absl::Status BadOption(const std::string& what) {
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig, what);
}

bool HaveSameIp(const sockaddr* a, const sockaddr* b) {
  if (b == nullptr || a->sa_family != b->sa_family) return false;
  if (a->sa_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(a)->sin_addr.s_addr ==
           reinterpret_cast<const sockaddr_in*>(b)->sin_addr.s_addr;
  }
  return a->sa_family == AF_INET6 &&
         std::memcmp(&reinterpret_cast<const sockaddr_in6*>(a)->sin6_addr,
                     &reinterpret_cast<const sockaddr_in6*>(b)->sin6_addr, sizeof(in6_addr)) == 0;
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

std::string NetDevicesOf(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* wanted = nullptr;
  ifaddrs* devices = nullptr;
  if (::getaddrinfo(host.c_str(), nullptr, &hints, &wanted) != 0) return "all";
  std::set<std::string> names;
  if (::getifaddrs(&devices) == 0) {
    for (const addrinfo* address = wanted; address != nullptr; address = address->ai_next) {
      for (const ifaddrs* device = devices; device != nullptr; device = device->ifa_next) {
        if (HaveSameIp(address->ai_addr, device->ifa_addr)) names.insert(device->ifa_name);
      }
    }
    ::freeifaddrs(devices);
  }
  ::freeaddrinfo(wanted);
  // No device has a wildcard address.
  return names.empty() ? "all" : absl::StrJoin(names, ",");
}

std::uint64_t RaiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  // Refused where the hard limit is above what the kernel allows; the old limit then stays.
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

void SaySystemPort(const std::string& endpoint) {
  std::printf("system %s\n", endpoint.c_str());
  std::fflush(stdout);
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
