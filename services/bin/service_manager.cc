#include "services/bin/service_manager.h"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"

namespace switchyard {

absl::Status ServiceManager::Send(absl::string_view state) const {
  if (socket_.empty()) return absl::OkStatus();
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_.size() >= sizeof(address.sun_path) || (socket_[0] != '/' && socket_[0] != '@')) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat(kNotifySocket, "=\"", socket_, "\" is neither a path of at most ",
                                  sizeof(address.sun_path) - 1, " bytes nor @name"));
  }
  std::memcpy(address.sun_path, socket_.data(), socket_.size());
  if (socket_[0] == '@') address.sun_path[0] = '\0';
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + socket_.size());
  const int sender = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const ssize_t sent = ::sendto(sender, state.data(), state.size(), MSG_NOSIGNAL,
                                reinterpret_cast<const sockaddr*>(&address), length);
  const int error = errno;
  if (sender >= 0) ::close(sender);
  if (sent == static_cast<ssize_t>(state.size())) return absl::OkStatus();
  return MakeError(
      absl::StatusCode::kUnavailable, Reason::kNotReady,
      absl::StrCat(kNotifySocket, "=", socket_, " takes no messages: ", std::strerror(error)));
}

void ServiceManager::SayReady(const std::string& endpoint) const {
  std::printf("ready %s\n", endpoint.c_str());
  std::fflush(stdout);
  const absl::Status sent = Send(absl::StrCat("READY=1\nSTATUS=serves at ", endpoint));
  if (sent.ok()) return;
  logger_->Write(LogLevel::kWarn,
                 absl::StrCat("the service manager does not learn that this process is ready: ",
                              sent.message()));
}

void ServiceManager::SayEnding() const {
  const absl::Status sent = Send("STOPPING=1");
  if (!sent.ok()) logger_->Write(LogLevel::kDebug, sent.message());
}

}  // namespace switchyard
