// Ten thousand connections against every port of a deployment whose processes have few descriptors:
// steps go on meanwhile, and afterwards new clients connect within a second.
#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <netinet/in.h>
#include <set>
#include <string>
#include <sys/resource.h>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "core/base/status_macros.h"
#include "tests/e2e/batch.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/step_load.h"
#include "tests/testing/listening_ports.h"
#include "tests/testing/temp_dir.h"
#include "worker/transport/descriptor.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::PortsOf;
using testing::Processes;
using testing::RunStep;
using testing::StepLoad;

constexpr int kConnections = 10'000;
// Descriptors that this process keeps for everything else.
constexpr int kOwn = 500;
#if defined(__SANITIZE_ADDRESS__)  // takes several times as long for each connection
constexpr Duration kAfterwards = std::chrono::seconds(10);
#else
constexpr Duration kAfterwards = std::chrono::seconds(1);
#endif

// Connections to one port that say nothing, as many at once as this process may have.
class Flood {
 public:
  Flood(std::uint16_t port, int connections) : port_(port) {
    for (int i = 0; i < connections; ++i) Connect();
  }

 private:
  void Connect() {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port_);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // Not waited for: a port that drops strangers never answers.
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    ASSERT_TRUE(socket.valid()) << errno;
    const int connected =
        ::connect(socket.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) == 0 ? 0 : errno;
    ASSERT_TRUE(connected == 0 || connected == EINPROGRESS) << connected;
    sockets_.push_back(std::move(socket));
  }

  const std::uint16_t port_;
  std::vector<Descriptor> sockets_;
};

int ConnectionsAtOnce() {
  rlimit limit{};
  EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit raised{limit.rlim_max, limit.rlim_max};
  EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &raised), 0);
  const int most = static_cast<int>(std::min<rlim_t>(limit.rlim_max, 1'000'000)) - kOwn;
  return std::min(kConnections, most);
}

class FloodTest : public Processes, public ::testing::WithParamInterface<int> {
 protected:
  // The programs with a limit of so many descriptors.
  void Start(int descriptors) {
    for (const char* program : {"switchyard-coordinator", "switchyard-worker"}) {
      const std::string wrapper = bin_.Join(program);
      std::ofstream(wrapper) << "#!/bin/sh\nulimit -n " << descriptors << " && exec "
                             << testing::kBinDir << "/" << program << " \"$@\"\n";
      std::filesystem::permissions(wrapper, std::filesystem::perms::owner_all);
    }
    LocalDeploymentOptions options;
    options.bin_dir = bin_.path();
    Deploy(2, std::move(options));
  }
  // A session that a new client opens through `transport`, with one step.
  absl::Status OneStep(const std::string& transport) {
    SY_ASSIGN_OR_RETURN(const std::unique_ptr<Client> client, Connect(transport));
    SY_ASSIGN_OR_RETURN(const std::unique_ptr<MoeSession> session, client->Open({}));
    Batch batch(2, 5);
    return RunStep(*session, batch, 0);
  }

  const testing::TempDir bin_;
};

TEST_P(FloodTest, OfEveryPortStopsNoStepAndNoNewClientAfterwards) {
  const int at_once = ConnectionsAtOnce();
  ASSERT_GT(at_once, 0);
  ASSERT_NO_FATAL_FAILURE(Start(GetParam()));
  ASSERT_NE(deployment_, nullptr);
  SY_ASSERT_OK_AND_ASSIGN(const auto mapped_client, Connect("shm"));
  SY_ASSERT_OK_AND_ASSIGN(const auto mapped,
                          mapped_client->OpenWhenReady({}, testing::kReadyTimeout));
  SY_ASSERT_OK_AND_ASSIGN(const auto gateway_client, Connect("gateway"));
  SY_ASSERT_OK_AND_ASSIGN(const auto gateway,
                          gateway_client->OpenWhenReady({}, testing::kReadyTimeout));
  Batch one(4, 1);
  Batch two(4, 2);
  StepLoad steps([&] { return RunStep(*mapped, one, 0); });
  StepLoad gateway_steps([&] { return RunStep(*gateway, two, 0); });

  int floods = 0;
  Duration slowest{};
  for (ChildProcess* process : {&deployment_->coordinator_process(),
                                &deployment_->worker_process(0), &deployment_->worker_process(1)}) {
    const std::set<std::uint16_t> ports = PortsOf(process->pid());
    ASSERT_FALSE(ports.empty());
    for (const std::uint16_t port : ports) {
      SCOPED_TRACE(absl::StrCat("port ", port, " of ", process->pid()));
      ++floods;
      const int before = steps.steps() + gateway_steps.steps();
      for (int left = kConnections; left > 0; left -= at_once) {
        const Flood flood(port, std::min(left, at_once));
      }
      const TimePoint over = SteadyClock().Now();
      absl::Status joined;
      do {
        joined = OneStep("shm");
        if (joined.ok()) joined = OneStep("gateway");
      } while (!joined.ok() && SteadyClock().Now() < over + kAfterwards);
      SY_EXPECT_OK(joined);
      const Duration took = SteadyClock().Now() - over;
      EXPECT_LE(took, kAfterwards) << "milliseconds: " << took / std::chrono::milliseconds(1);
      slowest = std::max(slowest, took);
      EXPECT_GT(steps.steps() + gateway_steps.steps(), before);
      EXPECT_TRUE(process->running());
    }
  }

  steps.Stop();
  gateway_steps.Stop();
  EXPECT_EQ(steps.failed(), 0) << steps.first_error();
  EXPECT_EQ(gateway_steps.failed(), 0) << gateway_steps.first_error();
  std::printf("new clients after a flood: at most %d ms\n",
              static_cast<int>(slowest / std::chrono::milliseconds(1)));
  EXPECT_GE(floods, 5) << "gRPC of three processes and UCX of two";
}

INSTANTIATE_TEST_SUITE_P(Descriptors, FloodTest, ::testing::Values(128, 1024),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace switchyard
