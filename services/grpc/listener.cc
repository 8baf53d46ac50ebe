#include "services/grpc/listener.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include <netdb.h>

#include "core/base/error.h"
#include "grpc/support/log.h"
#include "services/grpc/grpc_server.h"

namespace switchyard {
namespace {

constexpr int kBacklog = 1024;
// Bounds the time between two looks at the other sockets and at Stop.
constexpr int kAcceptsInTurn = 64;
// A quarter of the descriptors within these bounds is not for connections.
constexpr int kReserveMin = 32;
constexpr int kReserveMax = 1024;
// After accept(2) found no descriptor: others hold the reserve.
constexpr int kPauseMs = 10;
constexpr auto kSayEvery = std::chrono::seconds(10);

// The highest descriptor of a connection, plus one. The kernel gives out the lowest free number, so
// a number at this limit says that too few are free.
int DescriptorsForConnections() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return kReserveMax;
  const int all = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, 1 << 30));
  return all - std::clamp(all / 4, kReserveMin, kReserveMax);
}

std::uint16_t* PortIn(sockaddr* address) {
  return address->sa_family == AF_INET6 ? &reinterpret_cast<sockaddr_in6*>(address)->sin6_port
                                        : &reinterpret_cast<sockaddr_in*>(address)->sin_port;
}

absl::Status CannotListen(const std::string& endpoint, int error) {
  const ErrorMetadata metadata{{"endpoint", endpoint}};
  if (error == EADDRINUSE) {
    return MakeError(absl::StatusCode::kUnavailable, Reason::kAddressInUse,
                     absl::StrCat("cannot listen on ", endpoint,
                                  ": another process uses the port; choose another one, or 0 for "
                                  "any free port"),
                     metadata);
  }
  return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                   absl::StrCat("cannot listen on ", endpoint, ": ", std::strerror(error),
                                "; use an address and port of this machine that are permitted"),
                   metadata);
}

// A socket that listens on `address`; -1 with errno if it does not.
int ListenOn(const addrinfo& address) {
  const int socket = ::socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK,
                              address.ai_protocol);
  if (socket < 0) return -1;
  const int on = 1;
  // For the addresses of closed connections only: without SO_REUSEPORT a second server still fails.
  ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(socket, address.ai_addr, address.ai_addrlen) == 0 && ::listen(socket, kBacklog) == 0) {
    return socket;
  }
  const int error = errno;
  ::close(socket);
  errno = error;
  return -1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Listener>> Listener::Bind(const std::string& host, int port) {
  std::unique_ptr<Listener> made(new Listener);
  const absl::Status bound = made->BindAll(host, port);
  if (!bound.ok()) return bound;
  return made;
}

absl::Status Listener::BindAll(const std::string& host, int port) {
  const std::string endpoint = JoinHostPort(host, port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const int lookup = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (lookup != 0) {
    return MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig,
                     absl::StrCat("cannot listen on ", endpoint, ": ", gai_strerror(lookup),
                                  "; use an address of this machine"),
                     {{"endpoint", endpoint}});
  }
  int error = 0;
  port_ = port;
  for (const addrinfo* it = found; it != nullptr && error == 0; it = it->ai_next) {
    // All addresses of a name get the port that the kernel chose for the first.
    *PortIn(it->ai_addr) = htons(static_cast<std::uint16_t>(port_));
    const int socket = ListenOn(*it);
    // A name may have an address of a family that this machine does not use.
    if (socket < 0 && errno == EAFNOSUPPORT && it->ai_next != nullptr) continue;
    if (socket < 0) {
      error = errno;
      break;
    }
    sockets_.push_back(socket);
    sockaddr_storage own{};
    socklen_t length = sizeof(own);
    ::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length);
    port_ = ntohs(*PortIn(reinterpret_cast<sockaddr*>(&own)));
  }
  ::freeaddrinfo(found);
  wake_ = ::eventfd(0, EFD_CLOEXEC);
  if (error == 0 && wake_ < 0) error = errno;
  return error == 0 ? absl::OkStatus() : CannotListen(endpoint, error);
}

Listener::~Listener() {
  Stop();
  if (wake_ >= 0) ::close(wake_);
}

void Listener::Start(Handler handler, int reserve_share) {
  handler_ = std::move(handler);
  descriptors_max_ = DescriptorsForConnections() + reserve_share;
  thread_ = std::thread([this] { Run(); });
}

void Listener::Stop() {
  stopping_ = true;
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake_, &one, sizeof(one));
    thread_.join();
  }
  for (const int socket : std::exchange(sockets_, {})) ::close(socket);
}

void Listener::Run() {
  std::vector<pollfd> waits{{wake_, POLLIN, 0}};
  for (const int socket : sockets_) waits.push_back({socket, POLLIN, 0});
  bool exhausted = false;
  while (!stopping_) {
    // While accept(2) fails for lack of descriptors, connections wait in the backlog.
    exhausted ? ::poll(waits.data(), 1, kPauseMs) : ::poll(waits.data(), waits.size(), -1);
    exhausted = false;
    for (const int socket : sockets_) exhausted |= !AcceptFrom(socket);
  }
}

void Listener::SayRefused() {
  ++refused_;
  const auto now = std::chrono::steady_clock::now();
  if (now < say_again_) return;
  say_again_ = now + kSayEvery;
  gpr_log(
      GPR_ERROR,
      "port %d: %llu connections refused so far: descriptors from %d on are reserved; raise the "
      "limit of open files, or find out who connects",
      port_, static_cast<unsigned long long>(refused_), descriptors_max_);
}

bool Listener::AcceptFrom(int listener) {
  for (int i = 0; i < kAcceptsInTurn; ++i) {
    const int connection = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (connection < 0) {
      return errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM;
    }
    if (connection >= descriptors_max_) {
      ::close(connection);
      SayRefused();
      continue;
    }
    const int on = 1;
    ::setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    handler_(listener, connection);
  }
  return true;
}

}  // namespace switchyard
