#include "services/worker/test_ports.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/silent_port.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::SilentPort;
using ::testing::SizeIs;
using ::testing::StartsWith;

constexpr Duration kSoon = seconds(20);
const TimePoint kStart{};

TEST(TestPortsTest, CanBeConnectedToWithoutAnybodyWhoAccepts) {
  TestPorts ports({"127.0.0.1"}, {});

  const std::vector<std::string> open = ports.Open(kStart);

  ASSERT_THAT(open, SizeIs(1));
  EXPECT_THAT(open[0], StartsWith("127.0.0.1:"));
  EXPECT_TRUE(ConnectsToAny(open, kSoon));
  EXPECT_TRUE(ConnectsToAny(open, kSoon));
}

TEST(TestPortsTest, CloseOnceTheirTimeIsOver) {
  TestPorts ports({"127.0.0.1"}, {});
  const std::vector<std::string> first = ports.Open(kStart);

  ports.Open(kStart + kTestPortTime - milliseconds(1));
  EXPECT_TRUE(ConnectsToAny(first, kSoon));
  ports.Open(kStart + kTestPortTime);
  EXPECT_FALSE(ConnectsToAny(first, kSoon));
}

// Otherwise the last one would listen until another peer asks, which may be never.
TEST(TestPortsTest, CloseWithoutAnotherPeer) {
  TestPorts ports({"127.0.0.1"}, {});
  const std::vector<std::string> open = ports.Open(kStart);

  ports.Close(kStart + kTestPortTime - milliseconds(1));
  EXPECT_TRUE(ConnectsToAny(open, kSoon));
  ports.Close(kStart + kTestPortTime);
  EXPECT_FALSE(ConnectsToAny(open, kSoon));
}

TEST(TestPortsTest, TheOldestCloseWhenThereAreMany) {
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i <= kTestPortsMax; ++i) hosts.push_back(absl::StrCat("127.0.0.", i + 1));
  TestPorts ports(hosts, {});

  const std::vector<std::string> open = ports.Open(kStart);

  ASSERT_THAT(open, SizeIs(kTestPortsMax + 1));
  EXPECT_FALSE(ConnectsToAny({open[0]}, kSoon));
  EXPECT_TRUE(ConnectsToAny({open[1]}, kSoon));
}

// Otherwise whoever calls often would close what another peer is about to try.
TEST(TestPortsTest, ManyCallsShareAPort) {
  TestPorts ports({"127.0.0.1"}, {});
  const std::vector<std::string> first = ports.Open(kStart);

  for (int i = 0; i < 1000; ++i) EXPECT_EQ(ports.Open(kStart + kTestPortTime / 2), first);
  EXPECT_TRUE(ConnectsToAny(first, kSoon));

  // Too little of its time is left for a peer.
  EXPECT_NE(ports.Open(kStart + kTestPortTime / 2 + milliseconds(1)), first);
}

TEST(TestPortsTest, LieInTheRangeAndGoOnToTheNextFreePort) {
  TestPorts ports({"127.0.0.1"}, {38100, 38103});

  std::vector<std::string> all;
  for (int i = 0; i < 2; ++i) {
    const std::vector<std::string> open = ports.Open(kStart + i * seconds(3));
    ASSERT_THAT(open, SizeIs(1));
    EXPECT_THAT(open[0], StartsWith("127.0.0.1:3810"));
    all.push_back(open[0]);
  }
  EXPECT_NE(all[0], all[1]);
}

TEST(TestPortsTest, AHostThatIsNotOfThisMachineIsLeftOut) {
  TestPorts ports({"192.0.2.1", "junk", "127.0.0.1"}, {});

  EXPECT_THAT(ports.Open(kStart), SizeIs(1));
}

TEST(TestPortsTest, OneThatConnectsIsEnough) {
  const SilentPort closed;
  TestPorts ports({"127.0.0.1"}, {});
  std::vector<std::string> all = ports.Open(kStart);
  all.insert(all.begin(), closed.endpoint());

  EXPECT_TRUE(ConnectsToAny(all, kSoon));
}

TEST(TestPortsTest, NothingConnectsToNowhere) {
  const SilentPort closed;

  EXPECT_FALSE(ConnectsToAny({}, kSoon));
  EXPECT_FALSE(ConnectsToAny({closed.endpoint()}, kSoon));
  EXPECT_FALSE(ConnectsToAny({"localhost:80", "host", ":", "[::1", "127.0.0.1:99999"}, kSoon));
}

// TEST-NET-1: nobody answers, and mostly no route refuses.
TEST(TestPortsTest, WhoDoesNotAnswerCostsTheTimeGiven) {
  const SteadyClock clock;
  const TimePoint start = clock.Now();

  EXPECT_FALSE(ConnectsToAny({"192.0.2.1:9"}, milliseconds(300)));

  EXPECT_LT(clock.Now() - start, kSoon);
}

}  // namespace
}  // namespace switchyard
