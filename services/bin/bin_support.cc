#include "services/bin/bin_support.h"

#include <cstdio>
#include <cstring>
#include <netinet/in.h>
#include <set>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/str_join.h"
#include <ifaddrs.h>
#include <netdb.h>

#include "core/base/check.h"
#include "core/base/error.h"
#include "core/cli/exit_code.h"

namespace switchyard {
namespace {

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

LogLevel LevelOf(const LogSettings& settings) {
  LogLevel level = LogLevel::kInfo;
  SY_CHECK(LogLevelFromName(settings.level, &level), "the option was checked");
  return level;
}

LogFormat FormatOf(const LogSettings& settings) {
  LogFormat format = LogFormat::kAuto;
  SY_CHECK(LogFormatFromName(settings.format, &format), "the option was checked");
  return format;
}

}  // namespace

SignalWait::SignalWait(std::initializer_list<int> signals) {
  sigemptyset(&set_);
  for (const int signal : signals) sigaddset(&set_, signal);
  // Threads inherit the mask, so no thread of a library runs a handler.
  pthread_sigmask(SIG_BLOCK, &set_, nullptr);
}

int SignalWait::Wait() {
  int signal = 0;
  sigwait(&set_, &signal);
  return signal;
}

// A signal to this process, because sigwait cannot wait for anything else.
void SignalWait::Raise() { kill(getpid(), SIGTERM); }

void FatalError::Report(const absl::Status& why) {
  {
    const MutexLock lock(mutex_);
    why_.Update(why);
  }
  signals_->Raise();
}

absl::Status FatalError::why() const {
  const MutexLock lock(mutex_);
  return why_;
}

ProgramLog::ProgramLog(absl::string_view process, const LogSettings& settings,
                       std::vector<Library> libraries)
    : configured_(LevelOf(settings)),
      libraries_(std::move(libraries)),
      logger_(process, configured_, FormatOf(settings)) {
  SetLevel(configured_);
}

void ProgramLog::SetLevel(LogLevel level) {
  logger_.SetLevel(level);
  for (const Library library : libraries_) library(logger_.format(), level);
}

void ProgramLog::WaitForEnd(SignalWait* signals) {
  for (int signal = signals->Wait(); signal == SIGUSR1 || signal == SIGUSR2;
       signal = signals->Wait()) {
    const LogLevel level = signal == SIGUSR1 ? LogLevel::kDebug : configured_;
    SetLevel(level);
    logger_.Info("the log's level is %s now, after a signal", LogLevelName(level));
  }
}

void AddOwnCertificate(const TransportSecurity* security, MetricsText* text) {
  if (security == nullptr) return;
  const CertificateFacts own = security->OwnNow();
  AddCertificate(own.not_before_s, own.not_after_s, text);
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

int EndWith(const absl::Status& status, Logger* logger) {
  if (status.ok()) return kExitDone;
  logger->WriteLast(status.message(), {{"code", absl::StatusCodeToString(status.code())},
                                       {"reason", std::string(ReasonName(ReasonOf(status)))}});
  const Reason reason = ReasonOf(status);
  const bool usage = (absl::IsInvalidArgument(status) && reason == Reason::kBadConfig) ||
                     (absl::IsUnimplemented(status) && reason == Reason::kUnsupported);
  return usage ? kExitUsage : kExitFailed;
}

}  // namespace switchyard
