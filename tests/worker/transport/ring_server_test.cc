#include "worker/transport/ring_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <poll.h>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::TempDir;
using SteadyTime = std::chrono::steady_clock;

constexpr Duration kPatience = std::chrono::seconds(20);

ino_t InodeOf(const Descriptor& descriptor) {
  struct stat status {};
  EXPECT_EQ(::fstat(descriptor.get(), &status), 0);
  return status.st_ino;
}

std::size_t OpenDescriptors() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    count += entry.exists() || entry.is_symlink() ? 1 : 0;
  }
  return count;
}

std::vector<std::byte> BytesOf(const RingSecret& secret) {
  const auto bytes = std::as_bytes(std::span(&secret, 1));
  return {bytes.begin(), bytes.end()};
}

// True if something can be read, or the other end is closed, within the time.
bool Readable(int connection, std::chrono::milliseconds within) {
  pollfd ready{connection, POLLIN, 0};
  return ::poll(&ready, 1, static_cast<int>(within.count())) > 0;
}

class RingServerTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    auto server = RingServer::Start(directory(), name_);
    SY_ASSERT_OK(server);
    server_ = *std::move(server);
  }

  [[nodiscard]] std::string directory() const { return GetParam() ? dir_.path() : std::string(); }
  [[nodiscard]] RingKey KeyOf(const RingSecret& secret) const {
    return {.tag = 0, .socket = name_, .secret = secret, .in_directory = GetParam()};
  }
  [[nodiscard]] absl::StatusOr<RingVisit> Visit(const RingSecret& secret) const {
    return RingVisit::Make(KeyOf(secret), directory(), kPatience);
  }
  [[nodiscard]] Descriptor Connect() const {
    auto connected = ConnectLocal(directory(), name_, kPatience);
    SY_EXPECT_OK(connected);
    return connected.ok() ? *std::move(connected) : Descriptor();
  }
  RingSecret OfferRing() {
    const auto secret = rng_.NextId<RingSecret>();
    server_->Offer(secret, file_.get(), wake_.get());
    return secret;
  }

  const TempDir dir_;
  SystemRng rng_;
  const SocketName name_ = rng_.NextId<SocketName>();
  const Descriptor file_{::memfd_create("file", MFD_CLOEXEC)};
  const Descriptor wake_{::memfd_create("wake", MFD_CLOEXEC)};
  std::unique_ptr<RingServer> server_;
};

TEST_P(RingServerTest, GivesARingAndTakesTheVisitors) {
  const RingSecret other = OfferRing();
  const RingSecret secret = OfferRing();
  const Descriptor own(::memfd_create("own", MFD_CLOEXEC));

  auto visit = Visit(secret);
  SY_ASSERT_OK(visit);
  const RingParts parts = visit->TakeParts();
  EXPECT_EQ(InodeOf(parts.file), InodeOf(file_));
  EXPECT_EQ(InodeOf(parts.wake), InodeOf(wake_));
  ASSERT_TRUE(visit->HandOver(own.get(), wake_.get()));

  const Descriptor visitor = server_->Withdraw(secret);
  const auto handed = TakeHandedOver(visitor.get());
  SY_ASSERT_OK(handed);
  EXPECT_EQ(InodeOf(handed->file), InodeOf(own));
  EXPECT_FALSE(server_->Withdraw(secret).valid()) << "once";
  EXPECT_FALSE(server_->Withdraw(other).valid()) << "nobody came for it";
}

TEST_P(RingServerTest, KeepsTheLastVisitorOfARing) {
  const RingSecret secret = OfferRing();
  const Descriptor own(::memfd_create("own", MFD_CLOEXEC));
  const auto first = Visit(secret);
  const auto second = Visit(secret);
  SY_ASSERT_OK(first);
  SY_ASSERT_OK(second);

  EXPECT_TRUE(second->HandOver(own.get(), own.get()));

  const Descriptor kept = server_->Withdraw(secret);
  SY_EXPECT_OK(TakeHandedOver(kept.get()));
  EXPECT_FALSE(first->HandOver(own.get(), own.get()));
}

TEST_P(RingServerTest, GivesNothingWithoutTheSecret) {
  const RingSecret withdrawn = OfferRing();
  server_->Withdraw(withdrawn);
  const RingSecret offered = OfferRing();
  RingSecret near = offered;
  near.low ^= 1;

  for (const RingSecret& bad : {RingSecret{}, withdrawn, near, rng_.NextId<RingSecret>()}) {
    EXPECT_THAT(Visit(bad).status().message(), HasSubstr("does not offer that ring"));
  }
  SY_EXPECT_OK(Visit(offered));
}

TEST_P(RingServerTest, DropsWhatIsNoSecretWithTheDescriptorsInIt) {
  const RingSecret secret = OfferRing();
  std::vector<std::byte> longer = BytesOf(secret);
  longer.push_back(std::byte{0});
  const std::size_t before = OpenDescriptors();
  for (const auto& bytes : {std::vector<std::byte>{std::byte{1}}, std::vector<std::byte>(15),
                            longer, std::vector<std::byte>(4'000)}) {
    const Descriptor stranger = Connect();
    ASSERT_TRUE(SendMessage(stranger.get(), bytes));
    ASSERT_TRUE(Readable(stranger.get(), std::chrono::seconds(20)));
    std::array<std::byte, 4> answer{};
    EXPECT_FALSE(ReceiveMessage(stranger.get(), answer, true).has_value());
  }
  // Even with the secret: a peer of ours sends none here.
  const Descriptor stranger = Connect();
  ASSERT_TRUE(SendMessage(stranger.get(), BytesOf(secret), std::array{file_.get(), wake_.get()}));
  ASSERT_TRUE(Readable(stranger.get(), std::chrono::seconds(20)));
  std::array<std::byte, 4> answer{};
  EXPECT_FALSE(ReceiveMessage(stranger.get(), answer, true).has_value());
  EXPECT_EQ(OpenDescriptors(), before + 1) << "only this test's end";

  SY_EXPECT_OK(Visit(secret));
}

TEST_P(RingServerTest, AFloodOfSilentConnectionsBlocksNobodyAndHoldsFewDescriptors) {
  const RingSecret secret = OfferRing();
  const std::size_t before = OpenDescriptors();
  std::vector<Descriptor> silent;
  for (int i = 0; i < 300; ++i) silent.push_back(Connect());

  SY_EXPECT_OK(Visit(secret));

  // The offer's visitor is gone, but its connection stays until the offer is withdrawn.
  EXPECT_LE(OpenDescriptors(), before + silent.size() + kVisitorsMax + 1);
}

TEST_P(RingServerTest, ClosesASilentConnectionAfterAWhile) {
  const Descriptor silent = Connect();
  const auto start = SteadyTime::now();

  ASSERT_TRUE(Readable(silent.get(), std::chrono::seconds(20)));

  EXPECT_GE(SteadyTime::now() - start, kVisitorTime - std::chrono::milliseconds(100));
  std::array<std::byte, 1> answer{};
  EXPECT_FALSE(ReceiveMessage(silent.get(), answer, false).has_value());
  EXPECT_EQ(errno, 0);
}

TEST_P(RingServerTest, WaitsWithoutWorkUntilThereAreDescriptorsAgain) {
  const RingSecret secret = OfferRing();
  const int next = Descriptor(::dup(file_.get())).get();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  // One more: the visitor's end. The server's has no number left.
  const rlimit none{.rlim_cur = static_cast<rlim_t>(next) + 1, .rlim_max = limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  // Nothing of GoogleTest until there are descriptors again: UBSan needs some to look at objects.
  const auto connected = ConnectLocal(directory(), name_, kPatience);
  const int visitor = connected.ok() ? connected->get() : -1;
  const bool sent = SendMessage(visitor, BytesOf(secret));
  rusage begin{};
  ::getrusage(RUSAGE_SELF, &begin);
  const bool answered_before = Readable(visitor, std::chrono::milliseconds(300));
  rusage end{};
  ::getrusage(RUSAGE_SELF, &end);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);

  SY_ASSERT_OK(connected);
  ASSERT_TRUE(sent);
  EXPECT_FALSE(answered_before);
  const auto busy = [](const rusage& at) {
    return (at.ru_utime.tv_sec + at.ru_stime.tv_sec) * 1'000'000 + at.ru_utime.tv_usec +
           at.ru_stime.tv_usec;
  };
  EXPECT_LT(busy(end) - busy(begin), 150'000) << "us of CPU in 300 ms";
  ASSERT_TRUE(Readable(visitor, std::chrono::seconds(20)));
  std::array<std::byte, 1> answer{};
  const auto message = ReceiveMessage(visitor, answer, true);
  ASSERT_TRUE(message.has_value());
  EXPECT_TRUE(message->descriptors[1].valid());
}

// A visitor that cannot take the descriptors says so, and leaks none of them.
TEST_P(RingServerTest, AVisitorWithoutRoomForDescriptorsSaysSo) {
  const RingSecret secret = OfferRing();
  const Descriptor visitor = Connect();
  ASSERT_TRUE(SendMessage(visitor.get(), BytesOf(secret)));
  ASSERT_TRUE(Readable(visitor.get(), std::chrono::seconds(20)));
  const int next = Descriptor(::dup(file_.get())).get();
  const std::size_t before = OpenDescriptors();
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  for (const int room : {0, 1}) {
    const rlimit few{.rlim_cur = static_cast<rlim_t>(next + room), .rlim_max = limit.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
    const auto taken = TakeHandedOver(visitor.get());
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_FALSE(taken.ok());
    EXPECT_EQ(OpenDescriptors(), before);
    if (room == 0) {
      EXPECT_THAT(taken.status().message(), HasSubstr("ulimit"));
      break;
    }
  }
}

TEST_P(RingServerTest, ServesManyWhileRingsComeAndGo) {
  std::vector<std::jthread> visitors;
  for (int i = 0; i < 4; ++i) {
    visitors.emplace_back([this] {
      SystemRng rng;
      for (int round = 0; round < 50; ++round) {
        const auto secret = rng.NextId<RingSecret>();
        server_->Offer(secret, file_.get(), wake_.get());
        const auto visit = Visit(secret);
        SY_ASSERT_OK(visit);
        ASSERT_TRUE(visit->HandOver(wake_.get(), file_.get()));
        SY_ASSERT_OK(TakeHandedOver(server_->Withdraw(secret).get()));
      }
    });
  }
}

TEST_P(RingServerTest, EndsAtOnceWithVisitorsAndLeavesNothingBehind) {
  const RingSecret secret = OfferRing();
  const auto visit = Visit(secret);
  SY_ASSERT_OK(visit);
  const Descriptor silent = Connect();

  server_.reset();

  EXPECT_TRUE(std::filesystem::is_empty(dir_.path()));
  EXPECT_TRUE(Readable(silent.get(), std::chrono::seconds(20)));
  EXPECT_FALSE(visit->HandOver(file_.get(), wake_.get()));
  EXPECT_FALSE(Visit(secret).ok());
}

INSTANTIATE_TEST_SUITE_P(Places, RingServerTest, ::testing::Values(false, true),
                         [](const ::testing::TestParamInfo<bool>& param) {
                           return param.param ? "InADirectory" : "Abstract";
                         });

}  // namespace
}  // namespace switchyard
