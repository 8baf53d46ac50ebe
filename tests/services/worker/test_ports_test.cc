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

TEST(TestPortsTest, TheOldestCloseWhenThereAreMany) {
  TestPorts ports({"127.0.0.1"}, {});
  const std::vector<std::string> first = ports.Open(kStart);
  const std::vector<std::string> second = ports.Open(kStart);

  for (std::size_t i = 2; i <= kTestPortsMax; ++i) ports.Open(kStart);

  EXPECT_FALSE(ConnectsToAny(first, kSoon));
  EXPECT_TRUE(ConnectsToAny(second, kSoon));
}

TEST(TestPortsTest, LieInTheRangeAndGoOnToTheNextFreePort) {
  TestPorts ports({"127.0.0.1"}, {38100, 38103});

  for (int i = 0; i < 2; ++i) {
    const std::vector<std::string> open = ports.Open(kStart);
    ASSERT_THAT(open, SizeIs(1));
    EXPECT_THAT(open[0], StartsWith("127.0.0.1:3810"));
  }
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
