#include "worker/transport/ring_exchange.h"

#include <array>
#include <atomic>
#include <chrono>
#include <fcntl.h>
#include <functional>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"
#include "worker/transport/sealed_blob.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::TempDir;

constexpr Duration kPatience = std::chrono::seconds(20);
const auto kRefused = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kTransport);

RingKey RandomKey() {
  SystemRng rng;
  return {.tag = rng.Next(),
          .socket = rng.NextId<SocketName>(),
          .secret = rng.NextId<RingSecret>(),
          .in_directory = false};
}

std::string WhyNot(const absl::StatusOr<RingVisit>& visit) {
  EXPECT_THAT(visit, kRefused);
  return std::string(visit.status().message());
}

// A server that answers a visitor as it likes.
class ScriptedServer {
 public:
  explicit ScriptedServer(std::function<void(int connection)> answer,
                          const std::string& directory = "")
      : key_(RandomKey()) {
    key_.in_directory = !directory.empty();
    auto listener = LocalListener::Open(directory, key_.socket);
    SY_EXPECT_OK(listener);
    if (!listener.ok()) return;
    listener_ = *std::move(listener);
    ::fcntl(listener_.get(), F_SETFL, 0);
    thread_ = std::jthread([this, answer = std::move(answer)] {
      const Descriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      answer(connection.get());
    });
  }
  [[nodiscard]] const RingKey& key() const { return key_; }

 private:
  RingKey key_;
  LocalListener listener_;
  std::jthread thread_;
};

void Say(int connection, std::initializer_list<int> bytes, std::span<const int> descriptors = {}) {
  std::vector<std::byte> message;
  for (const int each : bytes) message.push_back(static_cast<std::byte>(each));
  // After the secret, which must have been read before the connection is closed.
  std::array<std::byte, 64> secret{};
  EXPECT_EQ(::recv(connection, secret.data(), secret.size(), 0), 16);
  EXPECT_TRUE(SendMessage(connection, message, descriptors));
}

TEST(RingExchangeTest, KeysSurviveTheirSeal) {
  RingKey key = RandomKey();
  for (const bool in_directory : {false, true}) {
    key.in_directory = in_directory;
    const auto opened = OpenRingKey(SealRingKey(key));
    SY_ASSERT_OK(opened);
    EXPECT_EQ(opened->tag, key.tag);
    EXPECT_EQ(opened->socket, key.socket);
    EXPECT_EQ(opened->secret, key.secret);
    EXPECT_EQ(opened->in_directory, in_directory);
  }
}

TEST(RingExchangeTest, RefusesKeysThatItHasNotMade) {
  const std::string good = SealRingKey(RandomKey());
  for (std::size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_THAT(OpenRingKey(bad), kRefused) << i;
    EXPECT_THAT(OpenRingKey(good.substr(0, i)), kRefused) << i;
  }
  EXPECT_THAT(OpenRingKey(SealBlob(BlobKind::kRingKey, "short")), kRefused);
  EXPECT_THAT(OpenRingKey("").status().message(), HasSubstr("tcp"));
}

TEST(RingExchangeTest, SaysWhatKeepsAVisitorFromItsServer) {
  const TempDir dir;
  RingKey key = RandomKey();
  const std::string nobody = WhyNot(RingVisit::Make(key, "", kPatience));
  EXPECT_THAT(nobody, HasSubstr("network namespace"));
  EXPECT_THAT(nobody, HasSubstr("--ring-dir"));
  EXPECT_THAT(WhyNot(RingVisit::Make(key, dir.path(), kPatience)), HasSubstr("--ring-dir"));
  key.in_directory = true;
  EXPECT_THAT(WhyNot(RingVisit::Make(key, "", kPatience)),
              HasSubstr("give this process the same shared directory (--ring-dir)"));
  EXPECT_THAT(WhyNot(RingVisit::Make(key, dir.path(), kPatience)),
              HasSubstr("both processes need the same shared directory"));
  key.socket = {};
  EXPECT_THAT(WhyNot(RingVisit::Make(key, dir.path(), kPatience)), HasSubstr("does not listen"));
}

// The two ways to a server.
TEST(RingExchangeTest, GivesBothSidesTheirDescriptors) {
  const TempDir dir;
  for (const std::string& directory : {std::string(), dir.path()}) {
    const Descriptor file(::memfd_create("x", MFD_CLOEXEC));
    const Descriptor wake(::memfd_create("y", MFD_CLOEXEC));
    absl::StatusOr<RingParts> handed = NotMapped("not taken");
    {
      const ScriptedServer server(
          [&](int connection) {
            Say(connection, {1}, std::array{file.get(), wake.get()});
            std::array<std::byte, 1> peek{};
            EXPECT_EQ(::recv(connection, peek.data(), 1, MSG_PEEK), 1);
            handed = TakeHandedOver(connection);
          },
          directory);

      auto visit = RingVisit::Make(server.key(), directory, kPatience);

      SY_ASSERT_OK(visit);
      const RingParts parts = visit->TakeParts();
      EXPECT_TRUE(parts.file.valid() && parts.wake.valid());
      EXPECT_TRUE(visit->HandOver(parts.file.get(), parts.wake.get()));
    }
    SY_ASSERT_OK(handed);
    EXPECT_TRUE(handed->file.valid() && handed->wake.valid());
  }
}

TEST(RingExchangeTest, SaysWhatAServerAnswered) {
  const Descriptor file(::memfd_create("x", MFD_CLOEXEC));
  const struct {
    std::function<void(int)> answer;
    const char* why;
  } kServers[] = {
      {[](int at) { Say(at, {2}); }, "does not offer that ring any more"},
      {[](int at) { Say(at, {3}); }, "another user"},
      {[](int at) { Say(at, {4}); }, "limit of open files"},
      {[](int at) { Say(at, {1}); }, "descriptors did not arrive"},
      {[](int at) { Say(at, {99}); }, "unknown answer"},
      {[&](int at) {
         Say(at, {99}, std::array{file.get(), file.get()});
       },
       "unknown answer"},
      {[&](int at) {
         Say(at, {1, 1, 1}, std::array{file.get(), file.get()});
       },
       "did not arrive"},
      {[](int) {}, "closed the connection"},
  };
  for (const auto& each : kServers) {
    const ScriptedServer server(each.answer);
    EXPECT_THAT(WhyNot(RingVisit::Make(server.key(), "", kPatience)), HasSubstr(each.why));
  }
}

TEST(RingExchangeTest, AServerThatDoesNotAnswerCostsTheTimeItMayCost) {
  std::atomic<bool> over{false};
  const ScriptedServer server([&](int) { over.wait(false); });
  const auto start = std::chrono::steady_clock::now();

  EXPECT_THAT(WhyNot(RingVisit::Make(server.key(), "", std::chrono::milliseconds(50))),
              HasSubstr("did not answer within 50 ms"));

  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(50));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  over = true;
  over.notify_all();
}

TEST(RingExchangeTest, AServerTakesNothingButARingFromItsVisitor) {
  const Descriptor file(::memfd_create("x", MFD_CLOEXEC));
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()), 0);
  const Descriptor visitor(ends[0]);
  const Descriptor server(ends[1]);
  EXPECT_THAT(TakeHandedOver(server.get()), kRefused) << "nothing yet: does not wait";
  const std::array two = {file.get(), file.get()};
  const std::vector<std::byte> ring = {std::byte{1}};
  for (const auto& bytes : {std::vector<std::byte>{std::byte{2}}, std::vector<std::byte>(3)}) {
    ASSERT_TRUE(SendMessage(visitor.get(), bytes, two));
    EXPECT_THAT(TakeHandedOver(server.get()), kRefused);
  }
  ASSERT_TRUE(SendMessage(visitor.get(), ring));
  EXPECT_THAT(TakeHandedOver(server.get()), kRefused);
  ASSERT_TRUE(SendMessage(visitor.get(), ring, two));
  SY_EXPECT_OK(TakeHandedOver(server.get()));
  EXPECT_THAT(TakeHandedOver(-1), kRefused);
}

}  // namespace
}  // namespace switchyard
