#include "tests/testing/stranger.h"

#include <netinet/in.h>
#include <poll.h>
#include <stop_token>
#include <sys/socket.h>
#include <utility>

#include "gtest/gtest.h"

#include "worker/transport/descriptor.h"

namespace switchyard::testing {
namespace {

constexpr timespec kPause{.tv_sec = 0, .tv_nsec = 200'000};
constexpr std::uint32_t kPeers = INADDR_LOOPBACK;
constexpr std::uint32_t kOther = INADDR_LOOPBACK + 1;

sockaddr_in At(std::uint32_t host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(host);
  return address;
}

}  // namespace

bool LetsStrangerIn(std::uint16_t port) {
  const Descriptor attempt(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const sockaddr_in from = At(kOther, 0);
  const sockaddr_in to = At(kPeers, port);
  EXPECT_EQ(::bind(attempt.get(), reinterpret_cast<const sockaddr*>(&from), sizeof(from)), 0);
  ::connect(attempt.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to));
  // On the loopback network an attempt that is not discarded succeeds within connect(2).
  sockaddr_in peer{};
  socklen_t length = sizeof(peer);
  return ::getpeername(attempt.get(), reinterpret_cast<sockaddr*>(&peer), &length) == 0;
}

Stranger::Stranger(std::vector<std::uint16_t> ports)
    : ports_(std::move(ports)), thread_([this](const std::stop_token& stop) {
        while (!stop.stop_requested()) TryAll();
      }) {}

void Stranger::Stop() {
  thread_.request_stop();
  if (thread_.joinable()) thread_.join();
}

void Stranger::TryAll() {
  for (const std::uint16_t port : ports_) {
    if (LetsStrangerIn(port)) ++connected_;
  }
  ++rounds_;
  // Far shorter than an attach takes, and leaves those whom it attacks a core.
  ::ppoll(nullptr, 0, &kPause, nullptr);
}

}  // namespace switchyard::testing
