#include "harness/local_deployment.h"

#include <filesystem>
#include <fstream>
#include <signal.h>
#include <sys/wait.h>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;

// Programs that are ready at once, end on SIGTERM, and write down how they were called.
class LocalDeploymentTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Program("switchyard-coordinator", "echo ready 127.0.0.1:1; exec sleep 60");
    Program("switchyard-worker", "echo ready 127.0.0.1:2; exec sleep 60");
  }
  void Program(const std::string& name, const std::string& body) {
    const std::string path = dir_.Write(
        name, "#!/bin/sh\necho " + name + " \"$@\" >> " + dir_.Join("calls") + "\n" + body + "\n");
    std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  }
  LocalDeploymentOptions Options(std::int32_t workers) const {
    LocalDeploymentOptions options;
    options.bin_dir = dir_.path();
    options.checkpoint = "some/\"model\"";
    options.workers = workers;
    return options;
  }

  testing::TempDir dir_;
};

TEST_F(LocalDeploymentTest, StartsACoordinatorAndWorkersUnderTheirNames) {
  LocalDeploymentOptions options = Options(2);
  options.worker_flags = {"--of-all"};
  SY_ASSERT_OK_AND_ASSIGN(const auto deployment, LocalDeployment::Start(std::move(options)));

  SY_ASSERT_OK(deployment->AddWorker());

  const std::string calls = testing::ReadBytes(dir_.Join("calls"));
  EXPECT_THAT(calls, HasSubstr("--id w0 --log-format text --of-all\n"));
  EXPECT_THAT(calls, HasSubstr("--id w1 --log-format text --of-all\n"));
  EXPECT_THAT(calls, HasSubstr("--coordinator 127.0.0.1:1 --id w2 --log-format text --of-all\n"));
  EXPECT_EQ(deployment->workers(), 3U);
  EXPECT_EQ(deployment->worker_address(2), "127.0.0.1:2");
}

TEST_F(LocalDeploymentTest, WorkersGetTheirDevicesAndOwnFlagsInTurn) {
  LocalDeploymentOptions options = Options(3);
  options.worker_flags = {"--of-all"};
  options.flags_in_turn = {{"--of-first", "1"}, {}};
  options.devices = "gpu:0;cpu";
  SY_ASSERT_OK_AND_ASSIGN(const auto deployment, LocalDeployment::Start(std::move(options)));

  const std::string calls = testing::ReadBytes(dir_.Join("calls"));
  EXPECT_THAT(calls, HasSubstr("--id w0 --log-format text --of-all --of-first 1 --device gpu:0\n"));
  EXPECT_THAT(calls, HasSubstr("--id w1 --log-format text --of-all --device cpu\n"));
  EXPECT_THAT(calls, HasSubstr("--id w2 --log-format text --of-all --of-first 1 --device gpu:0\n"));
}

TEST_F(LocalDeploymentTest, AsksForAsManyWorkersAsItStartsUnlessTold) {
  LocalDeploymentOptions told = Options(3);
  told.min_workers = 2;
  SY_ASSERT_OK_AND_ASSIGN(const auto all, LocalDeployment::Start(Options(3)));
  SY_ASSERT_OK_AND_ASSIGN(const auto two, LocalDeployment::Start(std::move(told)));

  EXPECT_THAT(testing::ReadBytes(all->directory() + "/deployment.yaml"),
              HasSubstr("/some/\\\"model\\\"\"\nmin_workers: 3\n"));
  EXPECT_THAT(testing::ReadBytes(two->directory() + "/deployment.yaml"),
              HasSubstr("min_workers: 2\n"));
}

TEST_F(LocalDeploymentTest, AsksForModeAndWireDtypeInEveryPhase) {
  LocalDeploymentOptions options = Options(1);
  options.mode = "low_latency";
  options.dispatcher_output_dtype = "int8";
  SY_ASSERT_OK_AND_ASSIGN(const auto asked, LocalDeployment::Start(std::move(options)));
  SY_ASSERT_OK_AND_ASSIGN(const auto silent, LocalDeployment::Start(Options(1)));

  const std::string file = testing::ReadBytes(asked->directory() + "/deployment.yaml");
  EXPECT_THAT(file, HasSubstr("dispatcher_output_dtype: \"int8\"\nphases:\n"));
  for (const char* phase : {"prefill", "decode", "mixed"}) {
    EXPECT_THAT(file,
                HasSubstr(std::string("  - {phase: ") + phase + ", mode: \"low_latency\"}\n"));
  }
  EXPECT_THAT(testing::ReadBytes(silent->directory() + "/deployment.yaml"),
              ::testing::Not(::testing::AnyOf(HasSubstr("dtype"), HasSubstr("phases"))));
}

TEST_F(LocalDeploymentTest, LeavesNothingBehind) {
  std::string directory;
  pid_t coordinator = -1;
  pid_t worker = -1;
  {
    SY_ASSERT_OK_AND_ASSIGN(const auto deployment, LocalDeployment::Start(Options(1)));
    directory = deployment->directory();
    coordinator = deployment->coordinator_process().pid();
    worker = deployment->worker_process(0).pid();
    ASSERT_TRUE(std::filesystem::exists(directory));
    ASSERT_EQ(kill(worker, 0), 0);
  }

  EXPECT_FALSE(std::filesystem::exists(directory));
  EXPECT_NE(kill(coordinator, 0), 0);
  EXPECT_NE(kill(worker, 0), 0);
}

TEST_F(LocalDeploymentTest, QuotesTheLogOfAWorkerThatDoesNotStart) {
  Program("switchyard-worker", "echo 'no room here' >&2; exit 1");

  const auto deployment = LocalDeployment::Start(Options(1));

  EXPECT_THAT(deployment, FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_THAT(std::string(deployment.status().message()), HasSubstr("no room here"));
}

TEST_F(LocalDeploymentTest, KillAllWhileItStartsEndsWhatIsThereAndStartsNoMore) {
  Program("switchyard-worker", "exec sleep 60");  // never ready
  LocalDeployment deployment(Options(1));
  absl::Status launched;
  std::thread starting([&] { launched = deployment.Launch(); });
  // The worker writes its call last of all.
  const std::string calls = dir_.Join("calls");
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  std::string text;
  while (text.find("--id w0") == std::string::npos && std::chrono::steady_clock::now() < until) {
    std::ifstream file(calls);
    text.assign(std::istreambuf_iterator<char>(file), {});
  }

  deployment.KillAll();
  starting.join();

  EXPECT_THAT(launched, FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_FALSE(std::filesystem::exists(deployment.directory()));
  EXPECT_EQ(waitid(P_ALL, 0, nullptr, WEXITED | WNOHANG | WNOWAIT), -1) << "a child is left";
  EXPECT_THAT(deployment.AddWorker(),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kSessionClosed));
}

TEST_F(LocalDeploymentTest, StopNamesWhoDidNotExitWithZero) {
  Program("switchyard-coordinator",
          "trap 'exit 0' TERM; echo ready 127.0.0.1:1; while true; do sleep 0.01; done");
  Program("switchyard-worker",
          "trap 'exit 3' TERM; echo ready 127.0.0.1:2; while true; do sleep 0.01; done");
  SY_ASSERT_OK_AND_ASSIGN(const auto deployment, LocalDeployment::Start(Options(2)));

  const absl::Status stopped = deployment->Stop(std::chrono::seconds(20));

  EXPECT_THAT(stopped, FailsWith(absl::StatusCode::kInternal, Reason::kInternal));
  EXPECT_THAT(std::string(stopped.message()), HasSubstr("w0, w1"));
  EXPECT_THAT(std::string(stopped.message()), ::testing::Not(HasSubstr("coordinator")));
}

}  // namespace
}  // namespace switchyard
