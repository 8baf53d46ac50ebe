#include "tests/testing/transport_peer.h"

#include <array>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include <spawn.h>

#include "core/base/canonical_io.h"
#include "core/base/error.h"
#include "core/base/status_macros.h"

namespace switchyard::testing {
namespace {

constexpr int kAnswerMilliseconds = 20'000;

template <typename Io, typename Offer>
void Walk(Io& io, Offer& offer) {
  io.String(offer.transport);
  io.String(offer.transport_version);
  io.Int(offer.frame_version);
  io.String(offer.address);
  io.Int(offer.incarnation.high);
  io.Int(offer.incarnation.low);
  io.Int(offer.attachment.value);
  io.Int(offer.ring_address);
  io.Int(offer.ring_bytes);
  io.Int(offer.slots);
  io.Int(offer.slot_bytes);
  io.String(offer.rkey);
}

absl::Status PeerError(const std::string& text) {
  return MakeError(absl::StatusCode::kUnavailable, Reason::kTransport, text);
}

}  // namespace

std::string PackOffer(const RingOffer& offer) {
  CanonicalWriter writer;
  Walk(writer, offer);
  return writer.Take();
}

RingOffer UnpackOffer(absl::string_view bytes) {
  RingOffer offer;
  CanonicalReader reader(bytes);
  Walk(reader, offer);
  return offer;
}

std::unique_ptr<TransportPeer> TransportPeer::Start() {
  // Tests stand in tests/, beside bin/.
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  const std::string program = self.parent_path().parent_path() / "bin" / "transport_peer";
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0) return nullptr;
  std::array<std::string, 2> words = {program, absl::StrCat(sockets[1])};
  std::array<char*, 3> argv = {words[0].data(), words[1].data(), nullptr};
  ::fcntl(sockets[1], F_SETFD, 0);
  pid_t pid = -1;
  const int spawned = ::posix_spawn(&pid, program.c_str(), nullptr, nullptr, argv.data(), environ);
  ::close(sockets[1]);
  if (spawned != 0) {
    ::close(sockets[0]);
    return nullptr;
  }
  return std::unique_ptr<TransportPeer>(new TransportPeer(pid, sockets[0]));
}

TransportPeer::~TransportPeer() {
  Kill();
  ::close(socket_);
}

int TransportPeer::Reap() {
  int status = 0;
  if (!reaped_) ::waitpid(pid_, &status, 0);
  reaped_ = true;
  return status;
}

void TransportPeer::Kill() {
  if (!reaped_) ::kill(pid_, SIGKILL);
  Reap();
}

bool TransportPeer::End() {
  ::shutdown(socket_, SHUT_RDWR);
  const int status = Reap();
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

absl::StatusOr<std::string> TransportPeer::Ask(const std::string& question) const {
  if (::send(socket_, question.data(), question.size(), MSG_NOSIGNAL) < 0) {
    return PeerError("the peer process is gone");
  }
  pollfd ready{socket_, POLLIN, 0};
  std::vector<char> answer(64 * 1024);
  const ssize_t got = ::poll(&ready, 1, kAnswerMilliseconds) > 0
                          ? ::recv(socket_, answer.data(), answer.size(), 0)
                          : -1;
  if (got <= 0) return PeerError("the peer process does not answer");
  const std::string text(answer.data() + 1, static_cast<std::size_t>(got - 1));
  if (answer[0] != '+') return PeerError(text);
  return text;
}

absl::StatusOr<RingOffer> TransportPeer::Attach(const RingOffer& offer, TransportChoice choice) {
  SY_ASSIGN_OR_RETURN(const std::string answer,
                      Ask(std::string{'A', static_cast<char>(choice)} + PackOffer(offer)));
  return UnpackOffer(answer);
}

absl::Status TransportPeer::CloseAll() { return Ask("C").status(); }

}  // namespace switchyard::testing
