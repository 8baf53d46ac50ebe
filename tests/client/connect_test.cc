// Client::Connect: what it refuses, and that it dials nobody.
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/client.h"
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

// Ports of this process in state LISTEN, from the table that the kernel gives.
std::vector<int> ListeningPorts() {
  std::set<std::string> sockets;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    sockets.insert(std::filesystem::read_symlink(entry.path(), gone).string());
  }
  std::vector<int> ports;
  std::ifstream table("/proc/self/net/tcp");
  for (std::string line; std::getline(table, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (fields.size() < 10 || fields[3] != "0A") continue;
    if (!sockets.contains(absl::StrCat("socket:[", fields[9], "]"))) continue;
    ports.push_back(std::stoi(fields[1].substr(fields[1].find(':') + 1), nullptr, 16));
  }
  return ports;
}

TEST(ConnectTest, ListensOnlyAtTheDataPorts) {
  const std::vector<int> before = ListeningPorts();
  ClientOptions options = Options(kNobody, "");
  options.data_ports = "21000-21063";

  SY_ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect(options));

  std::vector<int> ports = ListeningPorts();
  std::erase_if(ports, [&](int port) { return absl::c_linear_search(before, port); });
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
