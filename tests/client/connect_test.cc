// Client::Connect: what it refuses, and that it dials nobody.
#include <cstdint>
#include <set>
#include <string>
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/client.h"
#include "tests/testing/listening_ports.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;

// Nobody listens on port 1 of this machine.
constexpr char kNobody[] = "127.0.0.1:1";

ClientOptions Options(const std::string& coordinator, const std::string& gateway) {
  ClientOptions options;
  options.coordinator = coordinator;
  options.gateway = gateway;
  options.net_devices = "lo";
  return options;
}

TEST(ConnectTest, WantsACoordinatorOrAGatewayAndNotBoth) {
  EXPECT_THAT(Client::Connect(Options("", "")),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(Client::Connect(Options(kNobody, kNobody)),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
}

TEST(ConnectTest, RefusesAListOfGatewaysWithAMistake) {
  for (const char* gateways : {",", "nonsense", "127.0.0.1:1,", "127.0.0.1:1,,127.0.0.1:2",
                               "127.0.0.1:1, 127.0.0.1:2", "127.0.0.1:0", "0.0.0.0:1"}) {
    EXPECT_THAT(Client::Connect(Options("", gateways)),
                FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest))
        << gateways;
  }
  SY_EXPECT_OK(Client::Connect(Options("", "127.0.0.1:1,worker-1.example:2,[::1]:3")));
}

TEST(ConnectTest, RefusesDataPortsThatAreNoRange) {
  for (const char* ports : {"x", "30000", "30010-30000", "80-90", "30000-70000"}) {
    ClientOptions options = Options(kNobody, "");
    options.data_ports = ports;

    const auto client = Client::Connect(options);

    EXPECT_THAT(client, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest))
        << ports;
    EXPECT_EQ(MetadataOf(client.status()).at("field"), "data_ports");
  }
}

TEST(ConnectTest, ListensOnlyAtTheDataPorts) {
  const std::set<std::uint16_t> before = testing::PortsOf(::getpid());
  ClientOptions options = Options(kNobody, "");
  options.data_ports = "21000-21063";

  SY_ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect(options));

  std::set<std::uint16_t> ports = testing::PortsOf(::getpid());
  std::erase_if(ports, [&](std::uint16_t port) { return before.contains(port); });
  EXPECT_THAT(ports, ::testing::Each(::testing::AllOf(::testing::Ge(21000), ::testing::Le(21063))));
  EXPECT_THAT(ports, ::testing::Not(::testing::IsEmpty()));
}

TEST(ConnectTest, NamesTheCoordinatorThatIsNotThereWhenASessionIsOpened) {
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect(Options(kNobody, "")));

  const auto session = client->Open({});

  EXPECT_THAT(session, FailsWith(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost));
  EXPECT_EQ(MetadataOf(session.status()).at("endpoint"), kNobody);
}

TEST(ConnectTest, NamesTheGatewayThatIsNotThereAndSaysNothingElse) {
  ::testing::internal::CaptureStderr();
  absl::Status status;
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect(Options("", kNobody)));
    status = client->Open({}).status();
  }
  const std::string noise = ::testing::internal::GetCapturedStderr();

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_EQ(noise, "");
}

}  // namespace
}  // namespace switchyard
