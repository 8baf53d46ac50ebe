#include "worker/transport/ucx/address.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <net/if.h>
#include <string>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "gtest/gtest.h"
#include <sched.h>

#include "core/rng.h"
#include "tests/testing/memory_limit.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/transport_pair.h"
#include "worker/transport/sealed_blob.h"
#include "worker/transport/ucx/context.h"
#include "worker/transport/ucx/transport.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::kTestCookie;

// Where the parts of an address with one interface, lo, are.
constexpr std::size_t kWorker = 1;
constexpr std::size_t kMemoryDomain = 9;
constexpr std::size_t kDeviceLength = 10;
constexpr std::size_t kDeviceFlags = 11;
constexpr std::size_t kFamily = 12;
constexpr std::size_t kTransport = 29;
constexpr std::size_t kOverhead = 31;
constexpr std::size_t kBandwidth = 35;
constexpr std::size_t kLatency = 39;
constexpr std::size_t kCapabilities = 43;
constexpr std::size_t kPortLength = 47;
constexpr std::size_t kPort = 48;
constexpr std::size_t kBytes = 50;

std::unique_ptr<UcxContext> OnLoopback() { return *UcxContext::Create({.net_devices = "lo"}); }

std::string With(std::string address, std::size_t at, char value) {
  address[at] = value;
  return address;
}

std::string WithFloat(std::string address, std::size_t at, float value) {
  std::memcpy(&address[at], &value, sizeof(value));
  return address;
}

class UcxAddressTest : public ::testing::Test {
 protected:
  [[nodiscard]] absl::StatusOr<std::string> Rewrite(const std::string& address) const {
    return own_->address_check().Rewrite(address);
  }

  const std::unique_ptr<UcxContext> own_ = OnLoopback();
  const std::string peer_ = OnLoopback()->address();
};

TEST_F(UcxAddressTest, ARealAddressOfThisHostStaysAsItIs) {
  ASSERT_EQ(peer_.size(), kBytes) << "the table of this test does not fit";
  for (const char* devices : {"lo", "all"}) {
    const std::string address = (*UcxContext::Create({.net_devices = devices}))->address();

    SY_ASSERT_OK_AND_ASSIGN(const std::string rewritten, Rewrite(address));

    EXPECT_TRUE(rewritten == address) << devices;
  }
}

TEST_F(UcxAddressTest, RefusesWhatUcxWouldFollow) {
  const std::string long_ip(16, '\1');
  const auto ipv4 = [this](const char* ip) {  // instead of the host's id
    std::string address = With(peer_, kDeviceLength, static_cast<char>(0x80 | 6));
    address.replace(kDeviceFlags, 18, std::string("\0\2", 2) + std::string(ip, 4));
    return address;
  };
  const std::array<std::string, 31> table = {
      "",
      With(peer_, 0, 0x21),                // version 2: UCX reads another layout
      With(peer_, 0, 0x22),                // an unknown version: UCX ends the process
      With(peer_, 0, 0x00),                // no id of the worker
      With(peer_, 0, 0x30),                // a name follows
      With(peer_, 0, 0x60),                // an id of a client follows
      With(peer_, kMemoryDomain, '\x81'),  // a device without interfaces
      With(peer_, kDeviceLength, 0x12),    // another device follows
      With(peer_, kDeviceLength, '\x9f'),  // a longer address
      With(peer_, kDeviceLength, '\x80'),  // none
      With(peer_, kDeviceLength, '\xd2'),  // a number of paths
      With(peer_, kDeviceFlags, 2),        // flags that nobody has
      With(peer_, kDeviceFlags, 0),        // an IPv4 address of 16 bytes
      With(peer_, kFamily, 1),             // a Unix socket
      With(peer_, kTransport, 1),          // not tcp
      WithFloat(peer_, kOverhead, -1),
      WithFloat(peer_, kBandwidth, std::nanf("")),
      WithFloat(peer_, kBandwidth, 0),
      WithFloat(peer_, kBandwidth, -1e9F),  // what UCX 1.11 said; peers have this version
      WithFloat(peer_, kBandwidth, std::numeric_limits<float>::infinity()),
      WithFloat(peer_, kLatency, std::nanf("")),
      WithFloat(peer_, kLatency, 1e30F),
      With(peer_, kCapabilities + 3, 0x40),       // atomics
      With(peer_, kPortLength, '\xc2'),           // addresses of endpoints
      With(peer_, kPortLength, 0x02),             // another interface of the device
      With(peer_, kPortLength, '\xbf'),           // a longer address
      With(With(peer_, kPort, 0), kPort + 1, 0),  // no port
      ipv4("\0\0\0\0"),                           // every address of this host
      ipv4("\xe0\0\0\1"),                         // a multicast group
      ipv4("\xff\xff\xff\xff"),                   // everyone
      own_->address().substr(0, kMemoryDomain) + peer_.substr(kMemoryDomain, 1) + "x"};
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_THAT(Rewrite(table[i]),
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport))
        << "row " << i;
  }
  SY_EXPECT_OK(Rewrite(ipv4("\xc0\0\2\1")));
}

TEST_F(UcxAddressTest, RefusesEveryCutAndEveryExtension) {
  for (std::size_t size = 0; size < peer_.size(); ++size) {
    EXPECT_FALSE(Rewrite(peer_.substr(0, size)).ok()) << size;
  }
  for (std::size_t size = 1; size < 300; ++size) {
    EXPECT_FALSE(Rewrite(peer_ + std::string(size, '\x20')).ok()) << size;
  }
  // As many devices as bytes allow: UCX counts them in 8 bits.
  const std::string device = With(peer_, kDeviceLength, 0x12).substr(kMemoryDomain);
  std::string many = peer_.substr(0, kMemoryDomain);
  for (int i = 0; i < 300; ++i) many += device;
  EXPECT_FALSE(Rewrite(many + peer_.substr(kMemoryDomain)).ok());
}

// UCX tells endpoint configurations apart by these, and a ucp_worker can have 64 of them for good.
TEST_F(UcxAddressTest, TakesMemoryDomainsAndSystemDevicesFromItself) {
  for (const char domain : {'\0', '\1', '\x1f', '\x60'}) {
    SY_ASSERT_OK_AND_ASSIGN(const std::string rewritten,
                            Rewrite(With(peer_, kMemoryDomain, domain)));
    EXPECT_TRUE(rewritten == peer_);
  }
  std::string device = With(peer_, kDeviceLength, '\xb2');
  device.insert(kDeviceFlags, 1, '\x07');
  SY_ASSERT_OK_AND_ASSIGN(const std::string rewritten, Rewrite(device));
  EXPECT_TRUE(rewritten == peer_);
}

class UcxLinkAddressTest : public ::testing::Test {
 protected:
  static std::unique_ptr<Transport> MakeSide() {
    SystemRng rng;
    return *UcxTransport::Create(
        {.incarnation = rng.NextId<Incarnation>(), .context = {.net_devices = "lo"}});
  }
  static std::unique_ptr<Link> MakeLink(Transport& side) {
    return *side.CreateLink(
        {.cookie = kTestCookie, .slots = 2, .slot_bytes = 4096, .choice = TransportChoice::kTcp});
  }
};

TEST_F(UcxLinkAddressTest, NamesBothVersionsOfFramesAndOfUcx) {
  const std::unique_ptr<Transport> a = MakeSide();
  const std::unique_ptr<Transport> b = MakeSide();
  const std::unique_ptr<Link> peer = MakeLink(*b);
  const std::unique_ptr<Link> link = MakeLink(*a);
  const auto refusal_of = [&](const RingOffer& offer) {
    const absl::Status refused = link->Connect(offer);
    EXPECT_THAT(refused, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));
    return std::string(refused.message());
  };

  RingOffer offer = peer->offer();
  EXPECT_EQ(offer.transport_version, UcxVersion());
  offer.transport_version = "1.9.1";
  const std::string ucx = refusal_of(offer);
  offer = peer->offer();
  offer.frame_version = 7;
  const std::string frames = refusal_of(offer);

  EXPECT_NE(ucx.find("\"1.9.1\""), std::string::npos) << ucx;
  EXPECT_NE(ucx.find(UcxVersion()), std::string::npos) << ucx;
  EXPECT_NE(frames.find("version 7"), std::string::npos) << frames;
  EXPECT_NE(frames.find("version 1"), std::string::npos) << frames;
  for (const std::string& bad : {std::string(), std::string("x"), std::string(1000, '.')}) {
    offer = peer->offer();
    offer.transport_version = bad;
    EXPECT_LT(refusal_of(offer).size(), 300U);
  }
  SY_EXPECT_OK(link->Connect(peer->offer()));
}

// A peer may not decide how much memory is staged for what is sent to it.
TEST_F(UcxLinkAddressTest, RefusesLargerSlotsThanItsOptionsAllow) {
  const std::unique_ptr<Transport> a = MakeSide();
  const std::unique_ptr<Transport> b = MakeSide();
  const std::unique_ptr<Link> peer = MakeLink(*b);
  const auto link_for = [&](std::uint32_t most) {
    return *a->CreateLink({.cookie = kTestCookie,
                           .slots = 2,
                           .slot_bytes = 4096,
                           .peer_slot_bytes_max = most,
                           .choice = TransportChoice::kTcp});
  };

  EXPECT_THAT(link_for(4032)->Connect(peer->offer()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport));
  SY_EXPECT_OK(link_for(4033)->Connect(peer->offer()));
}

TEST_F(UcxLinkAddressTest, ARingThatCannotBeStagedIsAnError) {
  const std::unique_ptr<Transport> a = MakeSide();
  const std::unique_ptr<Transport> b = MakeSide();
  const std::unique_ptr<Link> peer = MakeLink(*b);
  const std::unique_ptr<Link> link = MakeLink(*a);
  RingOffer offer = peer->offer();
  offer.slot_bytes = 1U << 30;
  offer.ring_bytes = 2ULL << 30;

  const absl::Status refused = [&] {
    const testing::MemoryLimit limit(512U << 20);
    return link->Connect(offer);
  }();

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  EXPECT_EQ(link->path(), LinkPath::kNone);
  SY_EXPECT_OK(link->Connect(peer->offer())) << "a refused offer leaves the link usable";
}

TEST_F(UcxLinkAddressTest, PeersOfManyMemoryDomainsDoNotUseUpTheEndpoints) {
  const std::unique_ptr<Transport> a = MakeSide();
  const std::unique_ptr<Transport> b = MakeSide();
  for (int i = 0; i < 130; ++i) {
    const std::unique_ptr<Link> peer = MakeLink(*b);
    RingOffer offer = peer->offer();
    std::string address(*OpenBlob(BlobKind::kAddress, offer.address));
    // 32 memory domains, then 98 system devices.
    if (i < 32) address[kMemoryDomain] = static_cast<char>(i);
    if (i >= 32) address.insert(kDeviceFlags, 1, static_cast<char>(i - 32));
    if (i >= 32) address[kDeviceLength] = '\xb2';
    offer.address = SealBlob(BlobKind::kAddress, address);
    SY_ASSERT_OK(MakeLink(*a)->Connect(offer)) << i;
  }
}

// What a child process counted before it ended.
struct Tally {
  std::uint32_t made = 0;
  std::uint32_t accepted = 0;   // by the check
  std::uint32_t connected = 0;  // an endpoint was made
};

// Changes a few bytes, bits or pieces, or a number of the address as a whole.
std::string Mutated(std::string address, Rng& rng) {
  constexpr std::array<float, 8> kFloats = {0, -0.0F, 1, -1, 1e-30F, 1e14F, 1e38F, INFINITY};
  constexpr std::array<std::size_t, 3> kFloatAt = {kOverhead, kBandwidth, kLatency};
  for (std::uint64_t left = 1 + rng.Below(4); left > 0 && !address.empty(); --left) {
    const std::size_t at = rng.Below(address.size());
    const auto byte = static_cast<char>(rng.Below(256));
    switch (rng.Below(9)) {
      case 0:
        address[at] = static_cast<char>(address[at] ^ (1 << rng.Below(8)));
        break;
      case 1:
        address[at] = byte;
        break;
      case 2:
        address.insert(at, 1 + rng.Below(20), byte);
        break;
      case 3:
        address.erase(at, 1 + rng.Below(4));
        break;
      case 4:
        address.resize(rng.Below(2) == 0 ? at : address.size() + rng.Below(64), byte);
        break;
      case 5:
        address.insert(at, address.substr(rng.Below(address.size()), 1 + rng.Below(45)));
        break;
      case 6:
        if (address.size() >= kBytes) {
          address = WithFloat(address, kFloatAt[rng.Below(3)], kFloats[rng.Below(8)]);
        }
        break;
      case 7:  // what the check leaves to the peer: a worker's id, a port, a priority
        if (address.size() >= kBytes) {
          const std::array<std::size_t, 4> payload = {kWorker + rng.Below(8), kPort, kPort + 1,
                                                      kCapabilities};
          address[payload[rng.Below(4)]] = byte;
        }
        break;
      default:
        if (address.size() >= kBytes) address[kMemoryDomain] = static_cast<char>(rng.Below(128));
        break;
    }
  }
  return address;
}

// The ports from which connections come in the network of EnterOwnNetwork.
constexpr std::uint16_t kOwnPortFirst = 61000;
constexpr std::uint16_t kOwnPortLast = 61999;

// A connection of this process may come from the very port that it goes to. Then the kernel
// connects the socket to itself, and UCX reads what it has sent: that shows nothing about the
// address.
bool MayMeetItself(const std::string& mutant, const std::string& address) {
  const auto ports = UcxAddressCheck::ListenersOf(mutant);
  const auto real = UcxAddressCheck::ListenersOf(address);
  if (!ports.ok() || !real.ok()) return false;
  return std::any_of(ports->begin(), ports->end(), [&real](const UcxListener& of) {
    return of.port >= kOwnPortFirst && of.port <= kOwnPortLast &&
           std::none_of(real->begin(), real->end(),
                        [&of](const UcxListener& own) { return own.port == of.port; });
  });
}

// Connects to mutated addresses; the caller's process may not survive it.
Tally ConnectToMutants(std::uint64_t seed, std::uint32_t count, int progress) {
  SeededRng rng(seed);
  SystemRng names;
  const auto side = [&names] {
    return *UcxTransport::Create(
        {.incarnation = names.NextId<Incarnation>(), .context = {.net_devices = "lo"}});
  };
  const std::unique_ptr<Transport> a = side();
  const std::unique_ptr<Transport> b = side();
  const std::unique_ptr<UcxContext> checker = OnLoopback();
  const LinkOptions options = {
      .cookie = kTestCookie, .slots = 2, .slot_bytes = 4096, .choice = TransportChoice::kTcp};
  const std::unique_ptr<Link> peer = *b->CreateLink(options);
  const std::string address(*OpenBlob(BlobKind::kAddress, peer->offer().address));
  testing::RecordingSink sink;
  Tally tally;
  std::vector<std::unique_ptr<Link>> links;
  for (; tally.made < count; ++tally.made) {
    const std::string mutant = Mutated(address, rng);
    if (!checker->address_check().Rewrite(mutant).ok()) continue;
    ++tally.accepted;
    if (MayMeetItself(mutant, address)) continue;
    RingOffer offer = peer->offer();
    offer.address = SealBlob(BlobKind::kAddress, mutant);
    std::unique_ptr<Link> link = *a->CreateLink(options);
    if (::pwrite(progress, &tally, sizeof(tally), 0) < 0) std::abort();
    if (link->Connect(offer).ok()) {
      ++tally.connected;
      HeaderBytes header{};
      std::memcpy(link->OutboundSlot(0).data(), header.data(), header.size());
      static_cast<void>(link->Send(0, header.size()));
    }
    links.push_back(std::move(link));
    if (links.size() > 16) links.erase(links.begin());
    for (int i = 0; i < 3; ++i) a->Progress(sink);
    b->Progress(sink);
  }
  return tally;
}

// Gives this process a loopback network of its own, where root may: there a mutated port is
// nobody's. UCX aborts when what it dials answers in another protocol, and other tests listen
// meanwhile.
void EnterOwnNetwork() {
  if (::unshare(CLONE_NEWNET) != 0) return;
  const int socket = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  if (::ioctl(socket, SIOCSIFFLAGS, &request) != 0) std::abort();
  ::close(socket);
  std::ofstream("/proc/sys/net/ipv4/ip_local_port_range") << kOwnPortFirst << " " << kOwnPortLast;
}

// The property that the check is for: whatever it accepts, UCX survives.
TEST(UcxAddressPropertyTest, UcxSurvivesEveryAddressThatTheCheckAccepts) {
  constexpr std::uint32_t kMutants = 4000;
  for (const std::uint64_t seed : {1, 2, 3}) {
    const int file = ::memfd_create("progress", MFD_CLOEXEC);
    ASSERT_GE(file, 0);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      EnterOwnNetwork();
      const Tally tally = ConnectToMutants(seed, kMutants, file);
      static_cast<void>(::pwrite(file, &tally, sizeof(tally), 0));
      ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    Tally tally;
    EXPECT_EQ(::pread(file, &tally, sizeof(tally), 0), static_cast<ssize_t>(sizeof(tally)));
    ::close(file);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "ended at mutant " << tally.made << " of seed " << seed << ", status " << status;
    EXPECT_GT(tally.accepted, kMutants / 20) << "the mutants are too wild to show anything";
    EXPECT_GT(tally.connected, kMutants / 20);
  }
}

}  // namespace
}  // namespace switchyard
