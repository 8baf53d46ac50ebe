// Rings between processes that share less than a host: other users, PID and network namespaces.
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <functional>
#include <string>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sched.h>

#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "worker/transport/ring_server.h"
#include "worker/transport/shared_ring.h"
#include "worker/transport/sleeper.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;

constexpr RingShape kShape{.slots = 2, .slot_bytes = 4096};
constexpr Duration kPatience = std::chrono::seconds(20);
constexpr int kSkipped = 77;

// A process that offers a ring of its own, and works on the ring of who visits it.
class Owner {
 public:
  Owner(const std::string& directory, std::uint64_t tag) : tag_(tag) {
    auto sleeper = Sleeper::Create(Sleeper::kNoWorkFds, {});
    if (!sleeper.ok()) return;
    sleeper_ = *std::move(sleeper);
    auto ring = InboundRing::Allocate(InboundRing::Kind::kMapped, kShape, tag);
    if (!ring.ok()) return;
    ring_ = *std::move(ring);
    key_ = {.tag = tag,
            .socket = rng_.NextId<SocketName>(),
            .secret = rng_.NextId<RingSecret>(),
            .in_directory = !directory.empty()};
    auto server = RingServer::Start(directory, key_.socket);
    if (!server.ok()) return;
    server_ = *std::move(server);
    server_->Offer(key_.secret, ring_.file(), wake());
  }
  [[nodiscard]] bool ok() const { return server_ != nullptr; }
  [[nodiscard]] std::string key() const { return SealRingKey(key_); }
  [[nodiscard]] InboundRing& ring() { return ring_; }
  [[nodiscard]] int wake() const { return sleeper_->peer_wake(); }
  [[nodiscard]] bool Woken() const {
    if (sleeper_->Arm()) sleeper_->Wait(Duration::zero());
    return !sleeper_->TakeTimeout();
  }
  absl::StatusOr<PeerRing> MapVisitors() {
    const Descriptor visitor = server_->Withdraw(key_.secret);
    auto parts = TakeHandedOver(visitor.get());
    if (!parts.ok()) return parts.status();
    return PeerRing::Map(*std::move(parts), kShape, tag_ + 1);
  }

 private:
  SystemRng rng_;
  std::uint64_t tag_;
  std::unique_ptr<Sleeper> sleeper_;
  InboundRing ring_;
  RingKey key_;
  std::unique_ptr<RingServer> server_;
};

// A child that talks to the test over a socket. Forked before the test has threads.
class Child {
 public:
  explicit Child(const std::function<int(int socket)>& work) {
    std::array<int, 2> ends{};
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      ::close(ends[0]);
      ::_exit(work(ends[1]));
    }
    ::close(ends[1]);
    socket_.reset(ends[0]);
  }
  ~Child() { Wait(); }
  // Empty when the child is gone.
  [[nodiscard]] std::string Hear() const {
    std::array<char, 512> bytes{};
    const ssize_t got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    return got > 0 ? std::string(bytes.data(), static_cast<std::size_t>(got)) : std::string();
  }
  void Say(const std::string& text) const {
    EXPECT_EQ(::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Its exit status.
  int Wait() {
    if (pid_ > 0) ::waitpid(pid_, &status_, 0);
    pid_ = -1;
    return WIFEXITED(status_) ? WEXITSTATUS(status_) : -1;
  }

 private:
  pid_t pid_ = -1;
  int status_ = 0;
  Descriptor socket_;
};

void Tell(int socket, const std::string& text) {
  static_cast<void>(::send(socket, text.data(), text.size(), MSG_NOSIGNAL));
}
bool Listen(int socket) {
  std::array<char, 16> bytes{};
  return ::recv(socket, bytes.data(), bytes.size(), 0) > 0;
}

// The other process: tells its key, waits until its ring was visited, maps the visitor's, and
// answers in that what it found in its own.
int OwnAndAnswer(int socket, const std::string& directory) {
  Owner owner(directory, 100);
  if (!owner.ok()) return 1;
  Tell(socket, owner.key());
  if (!Listen(socket)) return 2;
  auto peer = owner.MapVisitors();
  if (!peer.ok()) {
    Tell(socket, std::string(peer.status().message()));
    return 3;
  }
  if (owner.ring().bells().Take() != 1U || !owner.Woken()) return 4;
  std::memcpy(peer->memory().data(), owner.ring().memory().data(), kShape.bytes());
  if (!peer->Ring(0)) return 5;
  Tell(socket, absl::StrCat("done in process ", ::getpid()));
  return Listen(socket) ? 0 : 6;
}

// Visits OwnAndAnswer in `child`, and uses both rings.
void ExpectEcho(const std::string& directory, const RingKey& key, const Child& child,
                const std::string& process = "") {
  Owner own(directory, 101);
  ASSERT_TRUE(own.ok());
  auto visit = RingVisit::Make(key, directory, kPatience);
  SY_ASSERT_OK(visit);
  ASSERT_TRUE(visit->HandOver(own.ring().file(), own.wake()));
  auto peer = PeerRing::Map(visit->TakeParts(), kShape, key.tag);
  SY_ASSERT_OK(peer);
  SeededRng rng(7);
  for (std::byte& each : peer->memory()) each = static_cast<std::byte>(rng.Below(256));
  EXPECT_TRUE(peer->Ring(1));
  child.Say("visited");

  const std::string heard = child.Hear();
  EXPECT_THAT(heard, HasSubstr("done in process"));
  if (!process.empty()) {
    EXPECT_THAT(heard, ::testing::EndsWith(" " + process));
  }
  EXPECT_EQ(own.ring().bells().Take(), 0U);
  EXPECT_TRUE(own.Woken());
  EXPECT_EQ(std::memcmp(own.ring().memory().data(), peer->memory().data(), kShape.bytes()), 0);
  child.Say("end");
}

// Two Pods on one host: neither sees the other's processes nor its abstract sockets, and both have
// the same volume.
TEST(RingProcessesTest, MapsRingsAcrossPidAndNetworkNamespacesThroughASharedDirectory) {
  const TempDir dir;
  Child child([&](int socket) {
    if (::unshare(CLONE_NEWPID | CLONE_NEWNET) != 0) {
      Tell(socket, absl::StrCat("unshare: ", std::strerror(errno)));
      return kSkipped;
    }
    // The first child of this process is process 1 of the new namespace.
    const pid_t inner = ::fork();
    if (inner == 0) ::_exit(OwnAndAnswer(socket, dir.path()));
    int status = 0;
    ::waitpid(inner, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
  });
  const std::string sealed = child.Hear();
  auto key = OpenRingKey(sealed);
  if (!key.ok() && child.Wait() == kSkipped) {
    GTEST_SKIP() << "no namespaces of its own for a child here: " << sealed;
  }
  SY_ASSERT_OK(key);

  RingKey abstract = *key;
  abstract.in_directory = false;
  EXPECT_THAT(RingVisit::Make(abstract, "", kPatience).status().message(),
              HasSubstr("network namespace"));
  ExpectEcho(dir.path(), *key, child, "1");
  EXPECT_EQ(child.Wait(), 0);
}

// Abstract names are open to all users of the host.
TEST(RingProcessesTest, ServesNoOtherUserWithoutADirectory) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kOther = 12345;
  Child child([&](int socket) {
    std::array<char, 512> bytes{};
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size(), 0);
    if (got <= 0 || ::setresuid(kOther, kOther, kOther) != 0) return 1;
    auto key = OpenRingKey({bytes.data(), static_cast<std::size_t>(got)});
    if (!key.ok()) return 2;
    auto visit = RingVisit::Make(*key, "", kPatience);
    Tell(socket, std::string(visit.status().message()));
    // One that leaves out the check that RingVisit makes.
    auto connection = ConnectLocal("", key->socket, kPatience);
    if (!connection.ok()) return 3;
    static_cast<void>(SendMessage(connection->get(), std::as_bytes(std::span(&key->secret, 1))));
    timeval time{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(connection->get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    ::fcntl(connection->get(), F_SETFL, 0);
    std::array<std::byte, 1> answer{};
    const ssize_t told = ::recv(connection->get(), answer.data(), answer.size(), 0);
    // The answer, or a connection that was closed before the secret came.
    return told == 1 ? static_cast<int>(answer[0]) : 3;
  });
  Owner own("", 100);
  ASSERT_TRUE(own.ok());
  child.Say(own.key());

  const std::string why = child.Hear();
  EXPECT_THAT(why, HasSubstr("belongs to user 0"));
  EXPECT_THAT(why, HasSubstr(absl::StrCat("user ", kOther)));
  EXPECT_EQ(child.Wait(), static_cast<int>(RingAnswer::kOtherUser));
  EXPECT_FALSE(own.MapVisitors().ok());
}

// Two users who share a directory.
TEST(RingProcessesTest, MapsRingsOfAnotherUserThroughADirectoryForBoth) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  constexpr uid_t kOther = 12345;
  const TempDir dir;
  ASSERT_EQ(::chmod(dir.path().c_str(), 0777), 0);
  Child child([&](int socket) {
    if (::setresuid(kOther, kOther, kOther) != 0) return 99;
    return OwnAndAnswer(socket, dir.path());
  });
  const auto key = OpenRingKey(child.Hear());
  SY_ASSERT_OK(key);

  ExpectEcho(dir.path(), *key, child);

  EXPECT_EQ(child.Wait(), 0);
}

// A killed process leaves its file, and the next one removes it.
TEST(RingProcessesTest, AKilledProcessLeavesNothingForGood) {
  const TempDir dir;
  {
    Child child([&](int socket) {
      const Owner owner(dir.path(), 100);
      if (!owner.ok()) return 1;
      Tell(socket, "up");
      Listen(socket);
      ::kill(::getpid(), SIGKILL);
      return 2;
    });
    ASSERT_EQ(child.Hear(), "up");
    child.Say("die");
    EXPECT_EQ(child.Wait(), -1);
  }
  EXPECT_FALSE(std::filesystem::is_empty(dir.path()));
  {
    const Owner next(dir.path(), 102);
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

}  // namespace
}  // namespace switchyard
