#include "worker/transport/ring_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <span>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard {
namespace {

// Connections that one turn accepts, so that a flood does not keep the others from their answers.
constexpr int kAcceptsMax = 16;
// How long the queue waits in the kernel when this process has no descriptor left.
constexpr Duration kDeaf = std::chrono::milliseconds(10);

TimePoint Now() { return std::chrono::steady_clock::now(); }

void Refuse(int connection, RingAnswer answer) {
  const std::array byte = {static_cast<std::byte>(answer)};
  static_cast<void>(SendMessage(connection, byte));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RingServer>> RingServer::Start(const std::string& directory,
                                                              const SocketName& name) {
  SY_ASSIGN_OR_RETURN(LocalListener listener, LocalListener::Open(directory, name));
  Descriptor stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop.valid()) {
    return MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory,
                     absl::StrCat("transport: eventfd failed (", std::strerror(errno),
                                  "); raise the limit of open files (ulimit -n)"));
  }
  return std::unique_ptr<RingServer>(
      new RingServer(directory, std::move(listener), std::move(stop)));
}

RingServer::RingServer(std::string directory, LocalListener listener, Descriptor stop)
    : directory_(std::move(directory)),
      listener_(std::move(listener)),
      stop_(std::move(stop)),
      thread_([this] { Run(); }) {}

RingServer::~RingServer() {
  const std::uint64_t one = 1;
  // Cannot fail: the counter is 0.
  [[maybe_unused]] const auto written = ::write(stop_.get(), &one, sizeof(one));
  thread_.join();
}

void RingServer::Offer(const RingSecret& secret, int file, int wake) {
  const MutexLock lock(mutex_);
  offers_[secret] = {.file = file, .wake = wake, .visitor = {}};
}

Descriptor RingServer::Withdraw(const RingSecret& secret) {
  const MutexLock lock(mutex_);
  const auto at = offers_.find(secret);
  if (at == offers_.end()) return {};
  Descriptor visitor = std::move(at->second.visitor);
  offers_.erase(at);
  return visitor;
}

void RingServer::Run() {
  while (Wait()) {
    const TimePoint now = Now();
    std::erase_if(visitors_,
                  [&](Visitor& each) { return Serve(&each.connection) || each.until <= now; });
    if (deaf_until_ <= now) Accept(now);
  }
}

bool RingServer::Wait() {
  std::vector<pollfd> fds = {{stop_.get(), POLLIN, 0}};
  TimePoint until = TimePoint::max();
  if (deaf_until_ > Now()) {
    until = deaf_until_;
  } else {
    fds.push_back({listener_.get(), POLLIN, 0});
  }
  for (const Visitor& each : visitors_) {
    fds.push_back({each.connection.get(), POLLIN, 0});
    until = std::min(until, each.until);
  }
  timespec time{};
  if (until != TimePoint::max()) {
    const auto left = std::max(until - Now(), Duration::zero()).count();
    time = {.tv_sec = left / 1'000'000'000, .tv_nsec = left % 1'000'000'000};
  }
  // A signal ends it early, which costs a turn.
  ::ppoll(fds.data(), fds.size(), until == TimePoint::max() ? nullptr : &time, nullptr);
  return (fds[0].revents & POLLIN) == 0;
}

void RingServer::Accept(TimePoint now) {
  for (int i = 0; i < kAcceptsMax; ++i) {
    Descriptor connection(
        ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.valid()) {
      // Without a descriptor the queue stays readable, which must not keep this thread busy.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        deaf_until_ = now + kDeaf;
      }
      return;
    }
    if (Serve(&connection)) continue;
    if (visitors_.size() >= kVisitorsMax) visitors_.erase(visitors_.begin());
    visitors_.push_back({.connection = std::move(connection), .until = now + kVisitorTime});
  }
}

bool RingServer::Serve(Descriptor* connection) {
  RingSecret secret;
  const auto message = ReceiveMessage(
      connection->get(), std::as_writable_bytes(std::span(&secret, 1)), /*descriptors=*/false);
  const bool waits = !message.has_value() && (errno == EAGAIN || errno == EINTR);
  // After the message was taken: closed over one that is unread, a connection loses the answer.
  if (directory_.empty() && UserAt(connection->get()) != ::geteuid()) {
    Refuse(connection->get(), RingAnswer::kOtherUser);
    return true;
  }
  if (waits) return false;
  if (message.has_value() && message->whole && message->bytes == sizeof(secret)) {
    Answer(secret, connection);
  }
  return true;
}

void RingServer::Answer(const RingSecret& secret, Descriptor* connection) {
  constexpr std::array kRing = {static_cast<std::byte>(RingAnswer::kRing)};
  const MutexLock lock(mutex_);
  const auto at = offers_.find(secret);
  if (at == offers_.end()) return Refuse(connection->get(), RingAnswer::kUnknown);
  Offered& offered = at->second;
  // Under the lock, so that the descriptors stay open. It does not block.
  if (SendMessage(connection->get(), kRing, std::array{offered.file, offered.wake})) {
    offered.visitor = std::move(*connection);
  } else {
    Refuse(connection->get(), RingAnswer::kNotSent);
  }
}

}  // namespace switchyard
