// Binding and stopping. Accepting is tested by grpc_server_test.cc, and with too few descriptors by
// the programs in tests/services/bin/programs_test.cc.
#include "services/grpc/listener.h"

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

TEST(ListenerTest, AllAddressesOfANameGetOnePort) {
  SY_ASSERT_OK_AND_ASSIGN(const auto listener, Listener::Bind("localhost", 0));
  EXPECT_GT(listener->port(), 0);
  EXPECT_THAT(Listener::Bind("127.0.0.1", listener->port()),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kAddressInUse));
}

TEST(ListenerTest, StopFreesThePortAlsoBeforeStart) {
  SY_ASSERT_OK_AND_ASSIGN(const auto first, Listener::Bind("127.0.0.1", 0));
  const int port = first->port();
  first->Stop();
  first->Stop();
  SY_ASSERT_OK_AND_ASSIGN(const auto second, Listener::Bind("127.0.0.1", port));
  EXPECT_EQ(second->port(), port);
}

TEST(ListenerTest, ANameThatDoesNotResolveIsBadConfig) {
  EXPECT_THAT(Listener::Bind("no-such-host.invalid", 0),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

}  // namespace
}  // namespace switchyard
