// A program on another host connects to the ports of UCX in a loop while sessions open and close,
// through a gateway and p2p: it never gets a connection, and no process ends.
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"

#include "tests/e2e/batch.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/step_load.h"
#include "tests/testing/listening_ports.h"
#include "tests/testing/stranger.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::PortsOf;
using testing::Processes;
using testing::RunStep;
using testing::Stranger;

constexpr int kSessions = 20;
// Of a worker: two transports, each of which receives and sends.
constexpr std::size_t kUcxPorts = 4;

class StrangersTest : public Processes, public ::testing::WithParamInterface<const char*> {
 protected:
  // What a worker listens on besides gRPC and its test ports (services/worker/test_ports.h), which
  // are there for everybody and read nothing.
  std::vector<std::uint16_t> UcxPortsOfWorker(std::size_t worker) {
    const std::string& address = deployment_->worker_address(worker);
    std::uint32_t grpc = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &grpc));
    std::vector<std::uint16_t> ports;
    for (const std::uint16_t port : PortsOf(deployment_->worker_process(worker).pid())) {
      if (port != grpc && !testing::LetsStrangerIn(port)) ports.push_back(port);
    }
    EXPECT_EQ(ports.size(), kUcxPorts);
    return ports;
  }
};

TEST_P(StrangersTest, NeverGetInWhileSessionsOpen) {
  Deploy(2);
  ASSERT_NE(deployment_, nullptr);
  const std::set<std::uint16_t> before = PortsOf(::getpid());
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect(GetParam()));
  SY_ASSERT_OK(client->OpenWhenReady({}, testing::kReadyTimeout).status());
  std::vector<std::uint16_t> ports;
  for (const std::uint16_t port : PortsOf(::getpid())) {
    if (!before.contains(port)) ports.push_back(port);  // of the client
  }
  for (std::size_t worker = 0; worker < 2; ++worker) {
    const std::vector<std::uint16_t> of_worker = UcxPortsOfWorker(worker);
    ports.insert(ports.end(), of_worker.begin(), of_worker.end());
  }

  Stranger stranger(ports);
  Batch batch(4, 3);
  for (int i = 0; i < kSessions; ++i) {
    SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady({}, testing::kReadyTimeout));
    SY_EXPECT_OK(RunStep(*session, batch, 0));
  }
  stranger.Stop();

  EXPECT_GT(stranger.rounds(), kSessions) << "or it may have missed them";
  EXPECT_EQ(stranger.connected(), 0);
  for (std::size_t worker = 0; worker < 2; ++worker) {
    EXPECT_TRUE(deployment_->worker_process(worker).running());
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, StrangersTest, ::testing::Values("tcp", "shm", "gateway"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace switchyard
