// Who may connect to UCX's ports. Other hosts are other addresses of the loopback network.
#include "worker/transport/ucx/admission.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <memory>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/base/unique_handle.h"
#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/stranger.h"
#include "tests/testing/transport_pair.h"
#include "worker/transport/ucx/transport.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using testing::FailsWith;
using testing::kTestCookie;

struct SocketTraits {
  using Handle = int;
  static int Invalid() { return -1; }
  static void Close(int socket) { ::close(socket); }
};
using Socket = UniqueHandle<SocketTraits>;

constexpr int kRefusedAfterMs = 100;
const std::string kHost1("\x7f\0\0\1", 4);
const std::string kHost2("\x7f\0\0\2", 4);
const std::string kHost3("\x7f\0\0\3", 4);
const std::string kIpv6Loopback = std::string(15, '\0') + '\1';

sockaddr_in Ipv4(const std::string& host, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  std::memcpy(&address.sin_addr, host.data(), host.size());
  return address;
}

template <typename Address>
Socket ListenOn(Address address) {
  Socket socket(::socket(reinterpret_cast<sockaddr*>(&address)->sa_family, SOCK_STREAM, 0));
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(::listen(socket.get(), 64), 0);
  return socket;
}

std::uint16_t PortOf(int socket) {
  sockaddr_in6 address{};
  socklen_t length = sizeof(address);
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &length), 0);
  return ntohs(address.sin6_port);  // where sockaddr_in has it too
}

// A connection that the other side has answered; none if it was discarded.
template <typename Address>
Socket TryConnect(Address from, Address to) {
  Socket socket(
      ::socket(reinterpret_cast<sockaddr*>(&to)->sa_family, SOCK_STREAM | SOCK_NONBLOCK, 0));
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<sockaddr*>(&from), sizeof(from)), 0);
  ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to));
  pollfd answered{socket.get(), POLLOUT, 0};
  int error = 0;
  socklen_t length = sizeof(error);
  if (::poll(&answered, 1, kRefusedAfterMs) == 0 ||
      ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0 || error != 0) {
    return Socket();
  }
  return socket;
}

Socket ConnectFrom(const std::string& host, std::uint16_t port) {
  return TryConnect(Ipv4(host, 0), Ipv4(kHost1, port));
}

class UcxAdmissionTest : public ::testing::Test {
 protected:
  UcxAdmissionTest() : listener_(ListenOn(Ipv4(kHost1, 0))) {
    admission_ = *UcxAdmission::Create(std::array{UcxListener{kHost1, PortOf(listener_.get())}});
  }

  bool MayConnect(const std::string& host) {
    return ConnectFrom(host, PortOf(listener_.get())).valid();
  }

  const TimePoint start_{std::chrono::seconds(1)};
  Socket listener_;
  UcxAdmission admission_;
};

TEST_F(UcxAdmissionTest, NobodyMayConnectUntilAdmittedAndAfterwards) {
  EXPECT_FALSE(MayConnect(kHost2));
  EXPECT_FALSE(admission_.pending());

  admission_.Admit(AttachmentId{1}, std::array{kHost2}, start_ + milliseconds(10));

  EXPECT_TRUE(admission_.pending());
  EXPECT_TRUE(MayConnect(kHost2));
  EXPECT_FALSE(MayConnect(kHost3));
  admission_.Expire(start_ + milliseconds(9));
  EXPECT_TRUE(MayConnect(kHost2));
  admission_.Expire(start_ + milliseconds(10));
  EXPECT_FALSE(MayConnect(kHost2));
  EXPECT_FALSE(admission_.pending());
}

TEST_F(UcxAdmissionTest, AHostIsAdmittedAsLongAsAnyLinkNeedsIt) {
  admission_.Admit(AttachmentId{1}, std::array{kHost2, kHost3}, start_ + milliseconds(20));
  admission_.Admit(AttachmentId{2}, std::array{kHost2}, start_ + milliseconds(10));
  admission_.Admit(AttachmentId{3}, std::array{kHost3}, start_ + milliseconds(30));

  admission_.Expire(start_ + milliseconds(20));

  EXPECT_FALSE(MayConnect(kHost2));
  EXPECT_TRUE(MayConnect(kHost3));
}

TEST_F(UcxAdmissionTest, WithdrawEndsTheAdmissionOfOneLink) {
  admission_.Admit(AttachmentId{1}, std::array{kHost2, kHost3}, start_);
  admission_.Admit(AttachmentId{2}, std::array{kHost3}, start_);

  admission_.Withdraw(AttachmentId{1});

  EXPECT_FALSE(MayConnect(kHost2));
  EXPECT_TRUE(MayConnect(kHost3));
  admission_.Withdraw(AttachmentId{2});
  EXPECT_FALSE(MayConnect(kHost3));
  EXPECT_FALSE(admission_.pending());
}

// Both branches of the filter grow with the hosts, beyond what a conditional jump reaches.
TEST_F(UcxAdmissionTest, HundredsOfHostsOfBothKinds) {
  std::vector<std::string> hosts;
  for (int i = 0; i < 300; ++i) {
    hosts.emplace_back(std::string("\x0a\0", 2) + static_cast<char>(i / 100) +
                       static_cast<char>(i));
  }
  for (int i = 0; i < 100; ++i) hosts.push_back(std::string(15, '\x20') + static_cast<char>(i));
  hosts.push_back(kHost3);

  admission_.Admit(AttachmentId{1}, hosts, start_);

  EXPECT_TRUE(MayConnect(kHost3));
  EXPECT_FALSE(MayConnect(kHost2));
}

TEST_F(UcxAdmissionTest, MoreHostsThanAFilterTakesLetEveryHostIn) {
  std::vector<std::string> hosts;
  for (int i = 0; i < 3000; ++i) {
    hosts.emplace_back(std::string("\x0a\0", 2) + static_cast<char>(i / 100) +
                       static_cast<char>(i % 100));
  }
  admission_.Admit(AttachmentId{1}, hosts, start_);
  EXPECT_TRUE(MayConnect(kHost2));
  admission_.Expire(start_);
  EXPECT_FALSE(MayConnect(kHost2));
}

// UCX binds a socket to each device's address, and other transports of the process have more.
TEST_F(UcxAdmissionTest, ASocketOfTheSameNumberAtAnotherAddressIsAnother) {
  const std::uint16_t port = PortOf(listener_.get());
  const Socket other = ListenOn(Ipv4(kHost2, port));
  const auto may_connect_to_other = [port] {
    return TryConnect(Ipv4(kHost3, 0), Ipv4(kHost2, port)).valid();
  };
  EXPECT_TRUE(may_connect_to_other());
  EXPECT_FALSE(MayConnect(kHost3));

  SY_EXPECT_OK(admission_.Add(std::array{UcxListener{kHost2, port}}));

  EXPECT_FALSE(may_connect_to_other());
  EXPECT_TRUE(admission_.Listens(std::array{UcxListener{kHost1, port}, UcxListener{kHost2, port}}));
  EXPECT_FALSE(admission_.Listens(std::array{UcxListener{kHost3, port}}));
}

TEST(UcxAdmissionIpv6Test, AdmitsByAllFourWords) {
  sockaddr_in6 loopback{};
  loopback.sin6_family = AF_INET6;
  loopback.sin6_addr = in6addr_loopback;
  const Socket listener = ListenOn(loopback);
  UcxAdmission admission =
      *UcxAdmission::Create(std::array{UcxListener{kIpv6Loopback, PortOf(listener.get())}});
  sockaddr_in6 to = loopback;
  to.sin6_port = htons(PortOf(listener.get()));
  const auto may_connect = [&] { return TryConnect(loopback, to).valid(); };
  EXPECT_FALSE(may_connect());

  for (std::size_t word = 0; word < 4; ++word) {
    std::string other = kIpv6Loopback;
    other[word * 4] = '\x40';
    admission.Admit(AttachmentId{1}, std::array{other}, TimePoint{});
    EXPECT_FALSE(may_connect()) << word;
  }
  admission.Admit(AttachmentId{1}, std::array{kIpv6Loopback}, TimePoint{});
  EXPECT_TRUE(may_connect());
}

TEST(UcxAdmissionCreateTest, APortThatNobodyListensOnIsAnError) {
  EXPECT_THAT(UcxAdmission::Create(std::array{UcxListener{kHost1, 1}}),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));
}

// The listening tcp ports of this process.
std::set<std::uint16_t> ListeningPorts() {
  std::set<std::uint16_t> ports;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    int descriptor = -1;
    int listens = 0;
    socklen_t length = sizeof(listens);
    if (!absl::SimpleAtoi(entry.path().filename().string(), &descriptor)) continue;
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens) {
      ports.insert(PortOf(descriptor));
    }
  }
  return ports;
}

class UcxStrangersTest : public ::testing::Test {
 protected:
  static constexpr Duration kAdmission = milliseconds(500);

  [[nodiscard]] std::unique_ptr<Transport> MakeSide() const {
    SystemRng rng;
    return *UcxTransport::Create({.incarnation = rng.NextId<Incarnation>(),
                                  .admission = admission_,
                                  .context = {.net_devices = "lo"}});
  }
  static std::unique_ptr<Link> MakeLink(Transport& side, bool connects_at_once,
                                        TransportChoice choice = TransportChoice::kTcp) {
    return *side.CreateLink({.cookie = kTestCookie,
                             .slots = 2,
                             .slot_bytes = 4096,
                             .choice = choice,
                             .connects_at_once = connects_at_once});
  }
  // One frame from `from` to the owner of `to`, which sees it within `limit`.
  bool Passes(Link& from, Link& to, milliseconds limit) {
    testing::RecordingSink sink;
    SystemRng rng;
    SY_EXPECT_OK(testing::SendFrame(from,
                                    testing::HeaderFor(to.offer(), FrameKind::kRequest, 0, 100),
                                    testing::RandomPayload(rng, 100)));
    const auto end = std::chrono::steady_clock::now() + limit;
    while (sink.frames.empty() && std::chrono::steady_clock::now() < end) {
      source_->Progress(sink);
      worker_->Progress(sink);
    }
    return sink.frames.size() == 1 && sink.deaths.empty();
  }
  // Random bytes to every port of UCX. How many connections were made.
  int SendGarbage(int rounds) {
    SystemRng rng;
    int connected = 0;
    for (int i = 0; i < rounds; ++i) {
      for (const std::uint16_t port : ports_) {
        const Socket stranger = ConnectFrom(kHost1, port);
        if (!stranger.valid()) continue;
        ++connected;
        const auto bytes = testing::RandomPayload(rng, 200);
        [[maybe_unused]] const auto sent = ::send(stranger.get(), bytes.data(), bytes.size(), 0);
      }
    }
    return connected;
  }
  // Two sides with no links so far.
  void Open() {
    source_ports_.clear();
    ports_.clear();
    const std::set<std::uint16_t> before = ListeningPorts();
    source_ = MakeSide();
    for (const std::uint16_t port : ListeningPorts()) {
      if (!before.contains(port)) source_ports_.push_back(port);
    }
    worker_ = MakeSide();
    for (const std::uint16_t port : ListeningPorts()) {
      if (!before.contains(port)) ports_.push_back(port);
    }
  }

  Duration admission_ = kAdmission;
  std::vector<std::uint16_t> source_ports_;
  std::vector<std::uint16_t> ports_;  // of both sides
  std::unique_ptr<Transport> source_;
  std::unique_ptr<Transport> worker_;
};

TEST_F(UcxStrangersTest, NoPortOfUcxTakesAStrangerBeforeAPeerIsKnown) {
  Open();
  EXPECT_GE(ports_.size(), 4U) << "two workers on each side";
  EXPECT_EQ(SendGarbage(1), 0);
}

TEST_F(UcxStrangersTest, GarbageDoesNotReachUcxOnceLinksAreSetUp) {
  Open();
  // As a source and a worker do it: the source offers, the worker connects and answers.
  const std::unique_ptr<Link> offered = MakeLink(*source_, false);
  const std::unique_ptr<Link> answered = MakeLink(*worker_, true);
  const auto start = std::chrono::steady_clock::now();
  SY_ASSERT_OK(answered->Connect(offered->offer()));
  SY_ASSERT_OK(offered->Connect(answered->offer()));
  EXPECT_TRUE(Passes(*offered, *answered, milliseconds(2000)));
  EXPECT_TRUE(Passes(*answered, *offered, milliseconds(2000)));
  EXPECT_LT(std::chrono::steady_clock::now() - start, milliseconds(900))
      << "a discarded attempt is repeated after a second";

  testing::RecordingSink sink;
  while (std::chrono::steady_clock::now() < start + kAdmission + milliseconds(100)) {
    source_->Progress(sink);
    worker_->Progress(sink);
  }

  EXPECT_EQ(SendGarbage(5), 0);
  EXPECT_TRUE(Passes(*offered, *answered, milliseconds(2000)));
  EXPECT_TRUE(Passes(*answered, *offered, milliseconds(2000)));
}

// Connections that wait to be accepted at a port of this process.
int WaitingAt(std::uint16_t port) {
  for (int descriptor = 0; descriptor < 1024; ++descriptor) {
    int listens = 0;
    tcp_info info{};
    socklen_t length = sizeof(listens);
    if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 ||
        listens == 0 || PortOf(descriptor) != port) {
      continue;
    }
    length = sizeof(info);
    EXPECT_EQ(::getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, &info, &length), 0);
    return static_cast<int>(info.tcpi_unacked);
  }
  return -1;
}

// UCX's own thread ends the process when it accepts at the wrong moment (admission.h).
TEST_F(UcxStrangersTest, OnlyTheTransportsThreadAccepts) {
  admission_ = kUcxAdmission;
  Open();
  const std::unique_ptr<Link> offered = MakeLink(*source_, false);
  const std::unique_ptr<Link> answered = MakeLink(*worker_, true);
  SY_ASSERT_OK(answered->Connect(offered->offer()));
  SY_ASSERT_OK(offered->Connect(answered->offer()));
  ASSERT_TRUE(source_->Arm());
  const auto start = std::chrono::steady_clock::now();
  const Socket stranger = ConnectFrom(kHost1, source_ports_[0]);
  ASSERT_TRUE(stranger.valid());

  source_->Wait(std::chrono::seconds(20));

  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "it wakes up";
  pollfd gone{stranger.get(), POLLIN, 0};
  (void)::poll(&gone, 1, 200);  // time for UCX's thread
  EXPECT_EQ(WaitingAt(source_ports_[0]), 1);
  testing::RecordingSink sink;
  source_->Progress(sink);
  EXPECT_EQ(WaitingAt(source_ports_[0]), 0);
}

class UcxGreetingTest : public UcxStrangersTest,
                        public ::testing::WithParamInterface<TransportChoice> {};

TEST_P(UcxGreetingTest, APeersHostIsLetInOnlyUntilThePeerHasConnected) {
  admission_ = kUcxAdmission;
  Open();
  const auto start = std::chrono::steady_clock::now();
  const std::unique_ptr<Link> offered = MakeLink(*source_, false, GetParam());
  const std::unique_ptr<Link> answered = MakeLink(*worker_, true, GetParam());
  SY_ASSERT_OK(answered->Connect(offered->offer()));
  SY_ASSERT_OK(offered->Connect(answered->offer()));
  EXPECT_TRUE(ConnectFrom(kHost1, source_ports_[0]).valid());

  // Steps are not needed for it.
  testing::RecordingSink sink;
  int let_in = 0;
  do {
    for (int i = 0; i < 100; ++i) {
      source_->Progress(sink);
      worker_->Progress(sink);
    }
    let_in = 0;
    for (const std::uint16_t port : ports_) let_in += ConnectFrom(kHost1, port).valid() ? 1 : 0;
  } while (let_in > 0 &&
           std::chrono::steady_clock::now() < start + kUcxAdmission / kUcxPatiencePart);

  EXPECT_EQ(let_in, 0);
  EXPECT_TRUE(Passes(*offered, *answered, milliseconds(2000)));
  EXPECT_TRUE(Passes(*answered, *offered, milliseconds(2000)));
  EXPECT_TRUE(sink.deaths.empty());
}

INSTANTIATE_TEST_SUITE_P(Choices, UcxGreetingTest,
                         ::testing::Values(TransportChoice::kTcp, TransportChoice::kShm),
                         [](const auto& of) { return std::string(TransportChoiceName(of.param)); });

// While it lives, this process gets at most `spare` further descriptors.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t spare) {
    EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
    const Socket next(::socket(AF_INET, SOCK_STREAM, 0));
    const rlimit few{static_cast<rlim_t>(next.get()) + spare, before_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

// UCX closes a port when accept(2) fails there.
class UcxLostPortTest : public UcxStrangersTest {
 protected:
  using Pair = std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>>;  // the source's is first

  // The tests' time for admissions may pass before a stranger knocks, on a machine with other work.
  UcxLostPortTest() { admission_ = kUcxAdmission; }

  Pair OpenPair() {
    Pair pair{MakeLink(*source_, false), MakeLink(*worker_, true)};
    SY_EXPECT_OK(pair.second->Connect(pair.first->offer()));
    SY_EXPECT_OK(pair.first->Connect(pair.second->offer()));
    return pair;
  }
  void ExpectPasses(const Pair& pair) {
    EXPECT_TRUE(Passes(*pair.first, *pair.second, milliseconds(5000)));
    EXPECT_TRUE(Passes(*pair.second, *pair.first, milliseconds(5000)));
  }
  // Connects to all of the source's ports while it has no descriptor to accept with.
  void LoseSourcePort() {
    const Pair lets_in = OpenPair();
    testing::RecordingSink sink;
    source_->Progress(sink);  // UBSan needs a descriptor to look at an object for the first time
    // UCX may give back a descriptor meanwhile, so that one of them gets in.
    constexpr std::size_t kForEachPort = 4;
    std::vector<Socket> strangers;
    for (std::size_t i = 0; i < kForEachPort * source_ports_.size(); ++i) {
      strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    }
    const FewDescriptors none(0);
    for (std::size_t i = 0; i < strangers.size(); ++i) {
      sockaddr_in to = Ipv4(kHost1, source_ports_[i % source_ports_.size()]);
      ::connect(strangers[i].get(), reinterpret_cast<sockaddr*>(&to), sizeof(to));
    }
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (SourceListens()) {
      ASSERT_LT(std::chrono::steady_clock::now(), end) << "UCX keeps a port";
      source_->Progress(sink);
    }
  }

 private:
  // Without /proc, for which no descriptor is left.
  bool SourceListens() {
    for (int descriptor = 0; descriptor < 1024; ++descriptor) {
      int listens = 0;
      socklen_t length = sizeof(listens);
      if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 ||
          listens == 0) {
        continue;
      }
      // UCX may close it between the two calls.
      sockaddr_in address{};
      length = sizeof(address);
      if (::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
          std::ranges::find(source_ports_, ntohs(address.sin_port)) != source_ports_.end()) {
        return true;
      }
    }
    return false;
  }
};

TEST_F(UcxLostPortTest, IsReplacedAndItsLinksGoOn) {
  Open();
  const Pair first = OpenPair();
  ExpectPasses(first);
  LoseSourcePort();

  const Pair second = OpenPair();

  ExpectPasses(second);
  ExpectPasses(first);
}

// Goal: a connection that nobody accepts any more keeps no thread awake. The child has the socket
// that UCX has closed, as one that an engine forks has.
TEST_F(UcxLostPortTest, AChildThatStillHasItKeepsNobodyAwake) {
  Open();
  const pid_t child = ::fork();
  if (child == 0) {
    ::pause();
    ::_exit(0);
  }
  LoseSourcePort();
  testing::RecordingSink sink;
  const auto begin = std::chrono::steady_clock::now();
  int sleeps = 0;
  while (std::chrono::steady_clock::now() < begin + milliseconds(300)) {
    source_->Progress(sink);
    if (!source_->Arm()) continue;
    source_->Wait(milliseconds(20));
    ++sleeps;
  }
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);

  EXPECT_GT(sleeps, 0);
  EXPECT_LT(sleeps, 100);
}

// UCX would leave a handler under the number of the closed socket, which later workers get.
TEST_F(UcxLostPortTest, DoesNotHarmLaterTransports) {
  for (int round = 0; round < 10; ++round) {
    Open();
    LoseSourcePort();
    source_ = nullptr;
    worker_ = nullptr;
  }
  Open();
  ExpectPasses(OpenPair());
}

// Whichever step of the replacement gets the last descriptor.
TEST_F(UcxLostPortTest, AFailedReplacementLeavesNothing) {
  Open();
  const Pair first = OpenPair();
  ExpectPasses(first);
  LoseSourcePort();
  const std::set<std::uint16_t> listening = ListeningPorts();
  const LinkOptions options{.cookie = kTestCookie,
                            .slots = 2,
                            .slot_bytes = 4096,
                            .choice = TransportChoice::kTcp,
                            .connects_at_once = false};

  rlim_t spare = 0;
  for (bool made = false; !made; ++spare) {
    ASSERT_LT(spare, 256U);
    absl::StatusOr<std::unique_ptr<Link>> link;
    {
      const FewDescriptors few(spare);
      link = source_->CreateLink(options);
    }
    made = link.ok();
    if (made) continue;
    EXPECT_EQ(ListeningPorts(), listening) << spare << " descriptors: " << link.status();
  }

  EXPECT_GT(spare, UcxContext::kReceiversMax) << "or failures may have used receivers up";
  ExpectPasses(OpenPair());
  ExpectPasses(first);
}

TEST_F(UcxStrangersTest, AnOfferLetsNobodyInUntilItsPeerIsKnown) {
  Open();
  std::unique_ptr<Link> offered = MakeLink(*source_, false);
  EXPECT_EQ(SendGarbage(1), 0);
  const std::unique_ptr<Link> answered = MakeLink(*worker_, true);
  SY_ASSERT_OK(answered->Connect(offered->offer()));
  SY_ASSERT_OK(offered->Connect(answered->offer()));
  for (const std::uint16_t port : source_ports_) {
    EXPECT_TRUE(ConnectFrom(kHost1, port).valid()) << "the peer's host";
    EXPECT_FALSE(ConnectFrom(kHost2, port).valid());
  }
  offered->Close();
  testing::RecordingSink sink;
  for (const auto end = std::chrono::steady_clock::now() + kAdmission;
       std::chrono::steady_clock::now() <= end;) {
    source_->Progress(sink);
    worker_->Progress(sink);
  }
  EXPECT_EQ(SendGarbage(1), 0);
}

// The kernel would discard an earlier attempt and repeat it after a second.
TEST_F(UcxStrangersTest, AWorkerDoesNotConnectBeforeTheSourceKnowsIt) {
  Open();
  const std::unique_ptr<Link> offered = MakeLink(*source_, false);
  const std::unique_ptr<Link> answered = MakeLink(*worker_, true);
  SY_ASSERT_OK(answered->Connect(offered->offer()));
  const auto start = std::chrono::steady_clock::now();
  testing::RecordingSink sink;
  while (std::chrono::steady_clock::now() < start + kAdmission / kUcxPatiencePart / 2) {
    worker_->Progress(sink);
  }

  SY_ASSERT_OK(offered->Connect(answered->offer()));

  EXPECT_TRUE(Passes(*offered, *answered, milliseconds(900)));
  EXPECT_TRUE(Passes(*answered, *offered, milliseconds(900)));
  EXPECT_TRUE(sink.deaths.empty());
}

TEST_F(UcxStrangersTest, AStrangerNeverGetsInWhileLinksAreSetUp) {
  Open();
  testing::Stranger stranger(ports_);
  for (int i = 0; i < 100; ++i) {
    const std::unique_ptr<Link> offered = MakeLink(*source_, false);
    const std::unique_ptr<Link> answered = MakeLink(*worker_, true);
    SY_ASSERT_OK(answered->Connect(offered->offer()));
    SY_ASSERT_OK(offered->Connect(answered->offer()));
    ASSERT_TRUE(Passes(*offered, *answered, milliseconds(5000))) << i;
    ASSERT_TRUE(Passes(*answered, *offered, milliseconds(5000))) << i;
  }
  stranger.Stop();
  EXPECT_GT(stranger.rounds(), 0);
  EXPECT_EQ(stranger.connected(), 0);
}

}  // namespace
}  // namespace switchyard
