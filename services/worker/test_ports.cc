#include "services/worker/test_ports.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include <netdb.h>

#include "services/grpc/grpc_server.h"

namespace switchyard {
namespace {

// Enough for the peers that come at once, and for strangers beside them.
constexpr int kBacklog = 256;
// A stranger may name the ports, so it makes this process connect to no more of them.
constexpr std::size_t kConnectionsMax = 8;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// Looks no name up.
std::optional<Address> Parse(const std::string& host, const std::string& port) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) return std::nullopt;
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  ::freeaddrinfo(found);
  return address;
}

// "1.2.3.4:5" or "[::1]:5".
std::optional<Address> ParsePort(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return std::nullopt;
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  return Parse(host, text.substr(colon + 1));
}

int PortOf(int socket) {
  Address bound;
  bound.length = sizeof(bound.storage);
  std::array<char, 8> port{};
  auto* address = reinterpret_cast<sockaddr*>(&bound.storage);
  int number = 0;
  if (::getsockname(socket, address, &bound.length) != 0 ||
      ::getnameinfo(address, bound.length, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV) !=
          0 ||
      !absl::SimpleAtoi(port.data(), &number)) {
    return 0;
  }
  return number;
}

// A listening socket; invalid if there is none to be had.
Descriptor Listen(const std::string& host, PortRange ports) {
  for (std::uint32_t port = ports.first; port <= ports.last; ++port) {
    const std::optional<Address> address = Parse(host, absl::StrCat(port));
    if (!address) return {};
    Descriptor socket(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!socket.valid()) return {};
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address->storage),
               address->length) == 0 &&
        ::listen(socket.get(), kBacklog) == 0) {
      return socket;
    }
  }
  return {};
}

Descriptor StartToConnect(const std::string& port) {
  const std::optional<Address> address = ParsePort(port);
  if (!address) return {};
  Descriptor socket(
      ::socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid()) return {};
  const int started = ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address->storage),
                                address->length);
  return started == 0 || errno == EINPROGRESS ? std::move(socket) : Descriptor();
}

}  // namespace

std::vector<std::string> TestPorts::Open(TimePoint now) {
  std::vector<std::string> opened;
  const MutexLock lock(mutex_);
  CloseOld(now);
  for (const std::string& host : hosts_) {
    // The same one for everybody: a flood of calls must not close what another peer tries just now.
    const auto open = std::find_if(open_.rbegin(), open_.rend(), [&](const Port& port) {
      return port.host == host && port.until - now >= kTestPortTime / 2;
    });
    if (open != open_.rend()) {
      opened.push_back(open->address);
      continue;
    }
    Descriptor socket = Listen(host, ports_);
    const int port = socket.valid() ? PortOf(socket.get()) : 0;
    if (port == 0) continue;
    if (open_.size() == kTestPortsMax) open_.pop_front();
    opened.push_back(JoinHostPort(host, port));
    open_.push_back({std::move(socket), host, opened.back(), now + kTestPortTime});
  }
  return opened;
}

void TestPorts::Close(TimePoint now) {
  const MutexLock lock(mutex_);
  CloseOld(now);
}

void TestPorts::CloseOld(TimePoint now) {
  while (!open_.empty() && open_.front().until <= now) open_.pop_front();
}

bool ConnectsToAny(const std::vector<std::string>& ports, Duration time) {
  std::vector<Descriptor> sockets;
  std::vector<pollfd> waits;
  for (const std::string& port : ports) {
    if (sockets.size() == kConnectionsMax) break;
    Descriptor socket = StartToConnect(port);
    if (!socket.valid()) continue;
    waits.push_back({socket.get(), POLLOUT, 0});
    sockets.push_back(std::move(socket));
  }
  const SteadyClock clock;
  const TimePoint until = clock.Now() + time;
  for (TimePoint now = clock.Now(); !waits.empty() && now < until; now = clock.Now()) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - now);
    if (::poll(waits.data(), waits.size(), static_cast<int>(left.count())) <= 0) continue;
    for (pollfd& each : waits) {
      if (each.revents == 0) continue;
      int error = 0;
      socklen_t length = sizeof(error);
      if (::getsockopt(each.fd, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0 &&
          (each.revents & POLLERR) == 0) {
        return true;
      }
      each.fd = -1;  // It was refused; poll looks past it.
    }
    std::erase_if(waits, [](const pollfd& each) { return each.fd < 0; });
  }
  return false;
}

}  // namespace switchyard
