// Every process of a deployment is restarted, one after the other, under prefill and decode steps:
// no step fails, through a gateway neither, which is one of the restarted workers.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

#include "core/base/status_macros.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/step_load.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::Processes;
using testing::RunStep;
using testing::StepLoad;

constexpr std::int32_t kLayer = 2;
constexpr int kWorkers = 3;
constexpr Duration kEndMax = std::chrono::seconds(40);

class RestartTest : public Processes, public ::testing::WithParamInterface<const char*> {
 protected:
  void Start(const std::string& store) {
    LocalDeploymentOptions options;
    options.min_workers = 1;
    options.coordinator_flags = {"--store", store};
    Deploy(kWorkers, std::move(options));
    ASSERT_NE(deployment_, nullptr);
    SY_ASSERT_OK_AND_ASSIGN(watcher_client_, Connect("auto"));
    SY_ASSERT_OK_AND_ASSIGN(watcher_, watcher_client_->OpenWhenReady({}, testing::kReadyTimeout));
    ASSERT_TRUE(WaitForWorkers(*watcher_, kWorkers));
    SY_ASSERT_OK_AND_ASSIGN(client_, Connect(GetParam()));
    OpenSessionRequest order;
    order.phase = Phase::kDecode;
    order.mode = DispatchMode::kLowLatency;
    SY_ASSERT_OK_AND_ASSIGN(decode_, client_->OpenWhenReady(order, testing::kReadyTimeout));
    order.phase = Phase::kPrefill;
    order.mode = DispatchMode::kNormal;
    SY_ASSERT_OK_AND_ASSIGN(prefill_, client_->OpenWhenReady(order, testing::kReadyTimeout));
    SY_ASSERT_OK(RunStep(*decode_, decode_batch_, kLayer));
    first_y_ = decode_batch_.y;
    decode_load_ = std::make_unique<StepLoad>([this] { return DecodeStep(); });
    prefill_load_ =
        std::make_unique<StepLoad>([this] { return RunStep(*prefill_, prefill_batch_, kLayer); });
  }
  void TearDown() override {
    decode_load_.reset();
    prefill_load_.reset();
    decode_.reset();
    prefill_.reset();
    client_.reset();
    watcher_.reset();
    watcher_client_.reset();
  }
  // An error as well when y has other bits than before any change: in low_latency every placement
  // gives the same ones.
  absl::Status DecodeStep() {
    std::fill(decode_batch_.y.begin(), decode_batch_.y.end(),
              std::numeric_limits<float>::quiet_NaN());
    SY_RETURN_IF_ERROR(RunStep(*decode_, decode_batch_, kLayer));
    return decode_batch_.y == first_y_ ? absl::OkStatus() : absl::DataLossError("other bits");
  }
  void RestartWorker(std::size_t worker) {
    deployment_->worker_process(worker).Signal(SIGTERM);
    SY_ASSERT_OK_AND_ASSIGN(const int status, deployment_->worker_process(worker).Wait(kEndMax));
    EXPECT_TRUE(WIFEXITED(status)) << status;
    EXPECT_EQ(WEXITSTATUS(status), 0);
    ASSERT_TRUE(WaitForWorkers(*watcher_, kWorkers - 1));
    SY_ASSERT_OK(deployment_->RestartWorker(worker));
    ASSERT_TRUE(WaitForWorkers(*watcher_, kWorkers));
  }
  void ExpectNoStepFailed(const char* drill) {
    // The last change has come everywhere.
    const int decoded = decode_load_->steps();
    while (decode_load_->steps() < decoded + 20) std::this_thread::yield();
    decode_load_->Stop();
    prefill_load_->Stop();
    std::printf("drill %s %s: %d decode and %d prefill steps\n", drill, GetParam(),
                decode_load_->steps(), prefill_load_->steps());
    for (const auto* load : {decode_load_.get(), prefill_load_.get()}) {
      SY_EXPECT_OK(load->first_error());
      EXPECT_EQ(load->failed(), 0);
      EXPECT_GT(load->steps(), 5);
    }
  }

  [[nodiscard]] std::string File() const { return "sqlite:" + folder_.Join("store"); }
  void RestartCoordinator() {
    deployment_->coordinator_process().Signal(SIGKILL);
    SY_ASSERT_OK(deployment_->coordinator_process().Wait(kEndMax));
    SY_ASSERT_OK(deployment_->RestartCoordinator());
  }

  const testing::TempDir folder_;
  std::unique_ptr<Client> watcher_client_;
  std::unique_ptr<MoeSession> watcher_;  // follows the plan and submits nothing
  std::unique_ptr<Client> client_;
  std::unique_ptr<MoeSession> decode_;
  std::unique_ptr<MoeSession> prefill_;
  Batch decode_batch_{4, 31};
  Batch prefill_batch_{512, 31};
  std::vector<float> first_y_;
  std::unique_ptr<StepLoad> decode_load_;
  std::unique_ptr<StepLoad> prefill_load_;
};

TEST_P(RestartTest, OfAllWorkersOneByOneFailsNoStep) {
  ASSERT_NO_FATAL_FAILURE(Start(File()));

  for (std::size_t worker = 0; worker < kWorkers; ++worker) {
    ASSERT_NO_FATAL_FAILURE(RestartWorker(worker)) << worker;
  }

  ExpectNoStepFailed("rolling restart");
}

TEST_P(RestartTest, OfTheCoordinatorFailsNoStepAndPlansGoOn) {
  ASSERT_NO_FATAL_FAILURE(Start(File()));

  ASSERT_NO_FATAL_FAILURE(RestartCoordinator());
  ASSERT_NO_FATAL_FAILURE(RestartWorker(1));

  ExpectNoStepFailed("coordinator restart");
}

// Workers and sources tell the new coordinator of the plan that they use; it makes another one, to
// which they change.
TEST_P(RestartTest, OfTheCoordinatorWithoutItsStoreFailsNoStepAndPlansGoOn) {
  ASSERT_NO_FATAL_FAILURE(Start("memory"));
  SY_ASSERT_OK_AND_ASSIGN(const auto before, watcher_->Grant());

  ASSERT_NO_FATAL_FAILURE(RestartCoordinator());
  const auto until = std::chrono::steady_clock::now() + kEndMax;
  for (;;) {
    SY_ASSERT_OK_AND_ASSIGN(const auto now, watcher_->Grant());
    if (now.plan.epoch > before.plan.epoch && now.plan.workers.size() == kWorkers) break;
    ASSERT_LT(std::chrono::steady_clock::now(), until);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  ASSERT_NO_FATAL_FAILURE(RestartWorker(1));

  ExpectNoStepFailed("coordinator restart without store");
}

INSTANTIATE_TEST_SUITE_P(Transport, RestartTest, ::testing::Values("shm", "tcp", "gateway"),
                         [](const auto& param) { return std::string(param.param); });

class GatewayLossTest : public Processes {};

TEST_F(GatewayLossTest, ASessionGoesOnThroughAnotherWorkerWhenItsGatewayDies) {
  LocalDeploymentOptions options;
  options.min_workers = 1;
  Deploy(kWorkers, std::move(options));
  SY_ASSERT_OK_AND_ASSIGN(const auto client, Connect("gateway"));
  OpenSessionRequest order;
  order.mode = DispatchMode::kLowLatency;
  SY_ASSERT_OK_AND_ASSIGN(const auto session, client->OpenWhenReady(order, testing::kReadyTimeout));
  ASSERT_TRUE(WaitForWorkers(*session, kWorkers));
  Batch batch(8, 32);
  SY_ASSERT_OK(RunStep(*session, batch, kLayer));
  const std::vector<float> before = batch.y;

  deployment_->worker_process(0).Signal(SIGKILL);

  for (int step = 0; step < 50; ++step) {
    std::fill(batch.y.begin(), batch.y.end(), std::numeric_limits<float>::quiet_NaN());
    SY_ASSERT_OK(session->Run(batch.Request(kLayer), std::chrono::seconds(30))) << step;
    ASSERT_EQ(batch.y, before) << step;
  }
  SY_ASSERT_OK_AND_ASSIGN(const SessionReport report, session->Report(std::chrono::seconds(5)));
  EXPECT_NE(report.status.gateway_worker, "w0");
  EXPECT_TRUE(WaitForWorkers(*session, kWorkers - 1)) << "its status follows the plan";
}

}  // namespace
}  // namespace switchyard
