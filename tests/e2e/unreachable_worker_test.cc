// Workers that their peers cannot reach join under load: no step fails, no plan uses them, and the
// coordinator says why. One that is started right joins as ever.
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <sys/mount.h>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include <sched.h>

#include "harness/child_process.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/random_step.h"
#include "tests/e2e/step_load.h"
#include "tests/testing/program.h"
#include "tests/testing/silent_port.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::Processes;
using testing::RandomStep;
using testing::RunStep;
using testing::StepLoad;

std::vector<std::string> Joined(std::vector<std::string> first,
                                const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

constexpr MoeShape kShape{.hidden = 256, .intermediate = 128, .experts = 16, .top_k = 4};

class UnreachableWorkerTest : public Processes {
 protected:
  // A worker that advertises `endpoint`.
  void Join(const std::string& id, const std::string& endpoint) {
    Spawn({absl::StrCat(testing::kBinDir, "/switchyard-worker"), "--listen", "127.0.0.1:0",
           "--coordinator", deployment_->coordinator(), "--id", id, "--advertise", endpoint,
           "--net-devices", "lo"});
  }
  void Spawn(const std::vector<std::string>& argv) {
    SY_ASSERT_OK_AND_ASSIGN(
        ChildProcess process,
        ChildProcess::Spawn(argv, absl::StrCat(logs_.path(), "/", others_.size())));
    others_.push_back(std::move(process));
  }
  static absl::StatusOr<std::unique_ptr<MoeSession>> OpenDecode(Client& client) {
    OpenSessionRequest request;
    request.phase = Phase::kDecode;
    request.step_deadline = std::chrono::seconds(20);
    return client.OpenWhenReady(request, testing::kReadyTimeout);
  }
  // What syctl says of a worker once its state is `state`.
  nlohmann::json WaitForState(const std::string& id, const std::string& state) {
    const auto until = std::chrono::steady_clock::now() + testing::kReadyTimeout;
    nlohmann::json found;
    while (std::chrono::steady_clock::now() < until) {
      const testing::ProgramResult got =
          testing::RunProgram({absl::StrCat(testing::kBinDir, "/syctl"), "--target",
                               deployment_->coordinator(), "get", "workers", "-o", "json"});
      const auto all = nlohmann::json::parse(got.out, nullptr, false);
      if (all.is_discarded()) continue;
      for (const auto& worker : all.at("workers")) {
        if (worker.at("id") == id) found = worker;
      }
      if (!found.empty() && found.at("state") == state) return found;
    }
    ADD_FAILURE() << id << " is not " << state << ": " << found;
    return found;
  }

  testing::TempDir logs_;
  testing::SilentPort closed_;
  testing::SilentPort silent_;
  std::vector<ChildProcess> others_;
};

TEST_F(UnreachableWorkerTest, JoinsNoPlanAndFailsNoStep) {
  Deploy(2);
  ASSERT_NE(deployment_, nullptr);
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("auto"));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, OpenDecode(*client));
  RandomStep step(kShape, 4, 7);
  StepLoad load([&] { return RunStep(*session, step, LayerId{0}); });

  // A port that nobody listens on, one whose connections nobody accepts, and another worker's.
  ASSERT_NO_FATAL_FAILURE(Join("closed", closed_.endpoint()));
  silent_.Listen();
  ASSERT_NO_FATAL_FAILURE(Join("silent", silent_.endpoint()));
  ASSERT_NO_FATAL_FAILURE(Join("wrong", deployment_->worker_address(0)));
  const nlohmann::json closed = WaitForState("closed", "unreachable");
  const nlohmann::json silent = WaitForState("silent", "unreachable");
  const nlohmann::json wrong = WaitForState("wrong", "unreachable");
  EXPECT_THAT(closed.value("problem", ""), HasSubstr("no worker answers"));
  EXPECT_THAT(silent.value("problem", ""), HasSubstr("no worker answers"));
  EXPECT_THAT(wrong.value("problem", ""), HasSubstr("worker w0 answers"));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant before, session->Grant());
  EXPECT_EQ(before.plan.epoch.value, 1U);

  SY_ASSERT_OK(deployment_->AddWorker());

  EXPECT_TRUE(WaitForWorkers(*session, 3));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant after, session->Grant());
  EXPECT_EQ(after.plan.epoch.value, 2U);
  load.Stop();
  EXPECT_EQ(load.failed(), 0) << load.first_error();
  EXPECT_GT(load.steps(), 100);
}

// Two network namespaces with a cable between them: this process, the coordinator and most workers
// have one, a worker behind a firewall has the other.
class FirewallTest : public UnreachableWorkerTest {
 protected:
  static constexpr char kHost[] = "10.211.0.1";
  static constexpr char kOther[] = "10.211.0.2";

  void SetUp() override {
    // UCX finds devices in /sys, which shows those of the namespace in which it was mounted.
    if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("sys", "/sys", "sysfs", 0, nullptr) != 0) {
      GTEST_SKIP() << "no network namespace of its own here: " << std::strerror(errno);
    }
    Spawn({"/usr/bin/unshare", "--net", "--mount", "/bin/sh", "-c",
           "mount -t sysfs sys /sys && echo ready && exec sleep 300"});
    SY_ASSERT_OK(others_[0].WaitForLine("ready", testing::kReadyTimeout).status());
    other_ = absl::StrCat(others_[0].pid());
    Ip({"link", "set", "lo", "up"});
    Ip({"link", "add", "near", "type", "veth", "peer", "name", "far"});
    Ip({"link", "set", "far", "netns", other_});
    Ip({"addr", "add", absl::StrCat(kHost, "/24"), "dev", "near"});
    Ip({"link", "set", "near", "up"});
    IpOfOther({"link", "set", "lo", "up"});
    IpOfOther({"addr", "add", absl::StrCat(kOther, "/24"), "dev", "far"});
    IpOfOther({"link", "set", "far", "up"});
  }
  [[nodiscard]] std::vector<std::string> InOther() const {
    return {"/usr/bin/nsenter", "--target", other_, "--net", "--mount"};
  }
  static void Run(const std::vector<std::string>& command) {
    const testing::ProgramResult result = testing::RunProgram(command);
    EXPECT_EQ(result.code, 0) << absl::StrJoin(command, " ") << "\n" << result.err;
  }
  static void Ip(const std::vector<std::string>& command) { Run(Joined({"/sbin/ip"}, command)); }
  void IpOfOther(const std::vector<std::string>& command) const {
    Run(Joined(Joined(InOther(), {"/sbin/ip"}), command));
  }

  std::string other_;  // a process of the other namespace
};

// The coordinator reaches the worker, and so does gRPC of its peers, but rows would not.
TEST_F(FirewallTest, KeepsAWorkerOutOfPlansUntilItLetsRowsThrough) {
  LocalDeploymentOptions options;
  options.host = kHost;
  Deploy(2, std::move(options));
  ASSERT_NE(deployment_, nullptr);
  ClientOptions to;
  to.coordinator = deployment_->coordinator();
  to.net_devices = "near";
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Client::Connect(to));
  SY_ASSERT_OK_AND_ASSIGN(const auto session, OpenDecode(*client));
  RandomStep step(kShape, 4, 7);
  StepLoad load([&] { return RunStep(*session, step, LayerId{0}); });

  // What leaves these ports is dropped, so that no connection to them is established.
  const std::vector<std::string> rule = {"ipproto", "tcp", "sport", "20000-20063", "blackhole"};
  IpOfOther(Joined({"rule", "add"}, rule));
  Spawn(Joined(InOther(), {absl::StrCat(testing::kBinDir, "/switchyard-worker"), "--listen",
                           absl::StrCat(kOther, ":0"), "--coordinator", deployment_->coordinator(),
                           "--id", "behind", "--data-ports", "20000-20063"}));
  const nlohmann::json behind = WaitForState("behind", "unreachable");
  EXPECT_THAT(behind.value("problem", ""),
              HasSubstr("its peer w0 gets an answer, but no connection to the ports for rows"));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant before, session->Grant());
  EXPECT_EQ(before.plan.epoch.value, 1U);

  IpOfOther(Joined({"rule", "del"}, rule));

  EXPECT_TRUE(WaitForWorkers(*session, 3));
  load.Stop();
  EXPECT_EQ(load.failed(), 0) << load.first_error();
  EXPECT_GT(load.steps(), 100);
}

}  // namespace
}  // namespace switchyard
