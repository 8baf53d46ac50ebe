// Workers that die, stop or leave under load, and a coordinator that is gone: real processes, real
// signals. Each drill is run twice a test; --gtest_repeat makes it more.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <sys/wait.h>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/e2e/processes.h"
#include "tests/reference/calc_diff.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"
#include "worker/agent/agent_options.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::CalcDiff;
using testing::Processes;
using testing::ReferenceOf;
using testing::RunStep;

constexpr Duration kNoticeMax = std::chrono::seconds(1);
constexpr Duration kRecoverMax = std::chrono::seconds(20);
constexpr std::int32_t kLayer = 2;
constexpr double kPooledDiffMax = 1.5e-5;

Duration Since(TimePoint begin) { return SteadyClock().Now() - begin; }
double Millis(Duration time) { return std::chrono::duration<double, std::milli>(time).count(); }

// A signal stops a process's threads one by one.
bool WaitUntilStopped(pid_t pid) {
  const TimePoint begin = SteadyClock().Now();
  bool all = false;
  while (!all && Since(begin) < kRecoverMax) {
    all = true;
    for (const auto& task :
         std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"))) {
      std::ifstream file(task.path() / "stat");  // Empty when the thread has ended by now.
      const std::string stat(std::istreambuf_iterator<char>(file), {});
      all = all && (stat.empty() || stat.compare(stat.rfind(')') + 2, 1, "T") == 0);
    }
  }
  return all;
}

void ExpectNames(const absl::Status& status, Reason reason, const std::string& worker) {
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(ReasonOf(status), reason) << status;
  EXPECT_EQ(MetadataOf(status)["worker"], worker) << status;
  EXPECT_EQ(MetadataOf(status)["layer"], std::to_string(kLayer)) << status;
}

class Drill : public Processes {
 protected:
  void Open(const std::string& transport, const OpenSessionRequest& order) {
    SY_ASSERT_OK_AND_ASSIGN(client_, Connect(transport));
    SY_ASSERT_OK_AND_ASSIGN(session_, client_->OpenWhenReady(order, testing::kReadyTimeout));
  }
  void TearDown() override {
    session_.reset();
    client_.reset();
  }
  // Steps until one works; those before it may only say that a worker is lost.
  absl::Status Recover(Batch& batch) {
    const TimePoint begin = SteadyClock().Now();
    absl::Status status = RunStep(*session_, batch, kLayer);
    while (absl::IsUnavailable(status) && Since(begin) < kRecoverMax) {
      status = RunStep(*session_, batch, kLayer);
    }
    return status;
  }
  // Nothing of a step is left over.
  void ExpectNoHandleLeft() {
    SY_ASSERT_OK_AND_ASSIGN(const SessionReport report, session_->Report(std::chrono::seconds(10)));
    EXPECT_EQ(report.status.steps_in_flight, 0U);
    for (const AttachmentStatus& attachment : report.status.attachments) {
      EXPECT_EQ(attachment.credits_free, attachment.credits) << attachment.worker_id;
    }
  }
  void RestartAndRejoin(std::size_t worker) {
    SY_ASSERT_OK(deployment_->RestartWorker(worker));
    EXPECT_TRUE(WaitForWorkers(*session_, deployment_->workers()));
  }

  std::unique_ptr<Client> client_;
  std::unique_ptr<MoeSession> session_;
};

struct Kill {
  const char* transport;
  const char* moment;
};

class KillDrill : public Drill, public ::testing::WithParamInterface<Kill> {
 protected:
  [[nodiscard]] bool idle() const { return std::string(GetParam().moment) == "idle"; }
  [[nodiscard]] bool prefill() const { return std::string(GetParam().moment) == "prefill"; }

  // Kills `victim` under steps that never pause; the time from the kill to the error.
  Duration KillUnderLoad(std::size_t victim, Batch& batch, absl::Status* failed) {
    std::atomic<int> steps{0};
    std::atomic<std::int64_t> killed_at{0};
    const int wanted = 5 + static_cast<int>(SystemRng().Below(40));
    std::thread killer([&] {
      while (steps.load() < wanted) std::this_thread::yield();
      killed_at = SteadyClock().Now().time_since_epoch().count();
      deployment_->worker_process(victim).Signal(SIGKILL);
    });
    const TimePoint begin = SteadyClock().Now();
    do {
      *failed = RunStep(*session_, batch, kLayer);
      ++steps;
    } while (failed->ok() && Since(begin) < kRecoverMax);
    const TimePoint noticed = SteadyClock().Now();
    steps = wanted;  // Lets the killer go whatever happened.
    killer.join();
    return noticed - TimePoint(Duration(killed_at.load()));
  }

  void Check(std::size_t victim) {
    Batch batch(prefill() ? 512 : 4, 17);
    SY_ASSERT_OK(RunStep(*session_, batch, kLayer));
    const std::vector<float> before = batch.y;
    absl::Status failed;
    Duration took{};
    if (idle()) {
      deployment_->worker_process(victim).Signal(SIGKILL);
      SY_ASSERT_OK(deployment_->worker_process(victim).Wait(kRecoverMax));
      const TimePoint begin = SteadyClock().Now();
      failed = RunStep(*session_, batch, kLayer);
      took = Since(begin);
    } else {
      took = KillUnderLoad(victim, batch, &failed);
      EXPECT_FALSE(failed.ok()) << "nobody noticed";
    }
    std::printf("drill kill %s %s: %s after %.1f ms\n", GetParam().transport, GetParam().moment,
                failed.ok() ? "answered" : "refused", Millis(took));
    EXPECT_LE(took, kNoticeMax);
    if (!failed.ok()) ExpectNames(failed, Reason::kWorkerLost, absl::StrCat("w", victim));

    SY_ASSERT_OK(Recover(batch));
    if (prefill()) {
      EXPECT_LE(CalcDiff(batch.y, ReferenceOf(batch, kLayer)), kPooledDiffMax);
    } else {
      EXPECT_EQ(batch.y, before) << "low_latency is bit-equal on every placement";
    }
    ExpectNoHandleLeft();
  }
};

TEST_P(KillDrill, IsNoticedNamedAndMended) {
  Deploy(3);
  OpenSessionRequest order;
  order.phase = prefill() ? Phase::kPrefill : Phase::kDecode;
  order.mode = prefill() ? DispatchMode::kNormal : DispatchMode::kLowLatency;
  Open(GetParam().transport, order);
  for (const std::size_t victim : {1U, 2U}) {
    Check(victim);
    if (HasFatalFailure()) return;
    RestartAndRejoin(victim);
    Batch batch(4, 18);
    SY_EXPECT_OK(Recover(batch));
  }
}

INSTANTIATE_TEST_SUITE_P(Worker, KillDrill,
                         ::testing::Values(Kill{"shm", "prefill"}, Kill{"shm", "decode"},
                                           Kill{"shm", "idle"}, Kill{"tcp", "prefill"},
                                           Kill{"tcp", "decode"}, Kill{"tcp", "idle"}),
                         [](const auto& kill) {
                           return std::string(kill.param.transport) + "_" + kill.param.moment;
                         });

class StopDrill : public Drill, public ::testing::WithParamInterface<const char*> {
 protected:
  // Stops worker 1 under a session with `deadline`; the first error and when it came.
  Duration FirstError(Duration deadline, absl::Status* failed) {
    OpenSessionRequest order;
    order.phase = Phase::kDecode;
    order.mode = DispatchMode::kLowLatency;
    order.step_deadline = deadline;
    Open(GetParam(), order);
    Batch batch(4, 19);
    SY_EXPECT_OK(RunStep(*session_, batch, kLayer));
    deployment_->worker_process(1).Signal(SIGSTOP);
    EXPECT_TRUE(WaitUntilStopped(deployment_->worker_process(1).pid()));
    const TimePoint begin = SteadyClock().Now();
    *failed = RunStep(*session_, batch, kLayer);
    return Since(begin);
  }
  void ExpectWorksAfterItGoesOn() {
    deployment_->worker_process(1).Signal(SIGCONT);
    Batch batch(4, 20);
    SY_EXPECT_OK(Recover(batch));
  }
};

TEST_P(StopDrill, AShortDeadlineEndsTheStepAtTheDeadline) {
  Deploy(2);
  absl::Status failed;

  const Duration took = FirstError(std::chrono::seconds(1), &failed);

  std::printf("drill stop %s 1s: refused after %.1f ms\n", GetParam(), Millis(took));
  ExpectNames(failed, Reason::kStepDeadline, "w1");
  EXPECT_GE(took, std::chrono::milliseconds(990));
  EXPECT_LE(took, std::chrono::milliseconds(1500));
  ExpectWorksAfterItGoesOn();
}

TEST_P(StopDrill, ALongDeadlineEndsTheStepWhenTheWorkersLeaseEnds) {
  Deploy(2);
  absl::Status failed;

  const Duration took = FirstError(std::chrono::seconds(60), &failed);

  std::printf("drill stop %s 60s: refused after %.1f ms\n", GetParam(), Millis(took));
  ExpectNames(failed, Reason::kWorkerLost, "w1");
  EXPECT_LE(took, std::chrono::seconds(10));
  ExpectWorksAfterItGoesOn();
}

INSTANTIATE_TEST_SUITE_P(Worker, StopDrill, ::testing::Values("shm", "tcp"),
                         [](const auto& param) { return std::string(param.param); });

class LeaveDrill : public Drill {};

TEST_F(LeaveDrill, AnOpenSessionGoesOnWithoutTheCoordinator) {
  Deploy(2);
  Open("tcp", {});
  Batch before(8, 21);
  SY_ASSERT_OK(RunStep(*session_, before, kLayer));

  deployment_->coordinator_process().Signal(SIGKILL);
  SY_ASSERT_OK(deployment_->coordinator_process().Wait(kRecoverMax));

  for (int step = 0; step < 200; ++step) {
    Batch batch(8, 21);
    SY_ASSERT_OK(RunStep(*session_, batch, kLayer)) << "step " << step;
    ASSERT_EQ(batch.y, before.y);
  }
}

TEST_F(LeaveDrill, AGenerationGoesOnToItsEndWithoutTheCoordinator) {
  Deploy(2);
  const std::vector<std::string> argv{std::string(testing::kBinDir) + "/generate",
                                      "--model",
                                      testing::kShippedModel,
                                      "--target",
                                      deployment_->coordinator(),
                                      "--transport",
                                      "tcp",
                                      "--prompt",
                                      "SQLite is ",
                                      "--tokens",
                                      "100"};
  SY_ASSERT_OK_AND_ASSIGN(testing::Program program, testing::Program::Start(argv));
  ASSERT_TRUE(program.WaitForOutput("SQLite is a", kRecoverMax));

  deployment_->coordinator_process().Signal(SIGKILL);

  SY_ASSERT_OK_AND_ASSIGN(const testing::ProgramResult ran, program.Wait(std::chrono::seconds(60)));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_GE(ran.out.size(), 100U);
}

// Make before break: no step fails while a worker's experts move away.
TEST_F(LeaveDrill, AWorkerThatIsAskedToLeaveDrainsUnderLoadAndExitsWithZero) {
  Deploy(3);
  OpenSessionRequest order;
  order.mode = DispatchMode::kLowLatency;
  Open("shm", order);
  Batch before(8, 22);
  SY_ASSERT_OK(RunStep(*session_, before, kLayer));

  deployment_->worker_process(1).Signal(SIGTERM);

  const TimePoint begin = SteadyClock().Now();
  while (deployment_->worker_process(1).running() && Since(begin) < kRecoverMax) {
    Batch batch(8, 22);
    SY_ASSERT_OK(RunStep(*session_, batch, kLayer));
    ASSERT_EQ(batch.y, before.y);
  }
  SY_ASSERT_OK_AND_ASSIGN(const int status, deployment_->worker_process(1).Wait(kRecoverMax));
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(WaitForWorkers(*session_, 2));
}

// As when a machine is drained that has both, or one upgrade replaces both.
TEST_F(LeaveDrill, AWorkerWithASessionWaitsForACoordinatorThatIsAwayAndNoStepFails) {
  LocalDeploymentOptions options;
  options.worker_flags = {"--leave-alone-timeout", "60s"};
  const testing::TempDir dir;
  options.coordinator_flags = {"--sources-return", "2s", "--store",
                               "sqlite:" + dir.Join("plans.sqlite")};
  Deploy(3, std::move(options));
  OpenSessionRequest order;
  order.mode = DispatchMode::kLowLatency;
  Open("shm", order);
  Batch before(8, 24);
  SY_ASSERT_OK(RunStep(*session_, before, kLayer));
  deployment_->coordinator_process().Signal(SIGKILL);
  SY_ASSERT_OK(deployment_->coordinator_process().Wait(kRecoverMax));
  const auto steps_while = [&](auto goes_on) {
    while (goes_on()) {
      Batch batch(8, 24);
      SY_ASSERT_OK(RunStep(*session_, batch, kLayer));
      ASSERT_EQ(batch.y, before.y);
    }
  };

  const TimePoint begin = SteadyClock().Now();
  deployment_->worker_process(1).Signal(SIGTERM);
  // Longer than a worker that nobody uses would wait.
  steps_while([&] { return Since(begin) < AgentOptions().leave_unused_timeout * 5 / 4; });
  ASSERT_TRUE(deployment_->worker_process(1).running());
  SY_ASSERT_OK(deployment_->RestartCoordinator());
  steps_while(
      [&] { return deployment_->worker_process(1).running() && Since(begin) < 3 * kRecoverMax; });

  SY_ASSERT_OK_AND_ASSIGN(const int status, deployment_->worker_process(1).Wait(kRecoverMax));
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(WaitForWorkers(*session_, 2));
  steps_while([steps = 0]() mutable { return ++steps < 20; });
}

TEST_F(LeaveDrill, AllExitWithZeroWhenTheyAreAskedAtOnceWithASessionOpen) {
  Deploy(3);
  Open("shm", {});
  Batch batch(8, 23);
  SY_ASSERT_OK(RunStep(*session_, batch, kLayer));

  SY_EXPECT_OK(deployment_->Stop(kRecoverMax));
}

}  // namespace
}  // namespace switchyard
