// An operator drains, cordons, deletes, replaces a worker and restarts the coordinator with syctl,
// while a client's sessions compute: no step fails, and what each verb says is true.
#include <chrono>
#include <cmath>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "core/base/mutex.h"
#include "tests/e2e/batch.h"
#include "tests/e2e/processes.h"
#include "tests/e2e/step_load.h"
#include "tests/testing/program.h"
#include "tests/testing/temp_dir.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::Processes;
using testing::ProgramResult;
using testing::RunStep;
using testing::StepLoad;
using Json = nlohmann::json;

constexpr std::int32_t kLayer = 0;
constexpr Duration kProgramMax = std::chrono::seconds(120);

// Sum orders differ with the number of workers.
constexpr double kDriftMax = 0.02;

// The same step again and again, whose answer has to stay the same.
class SameBatch {
 public:
  SameBatch(std::int32_t tokens, std::uint64_t seed) : batch_(tokens, seed) {}
  absl::Status Run(MoeSession& session) {
    const absl::Status status = RunStep(session, batch_, kLayer);
    if (!status.ok()) return status;
    if (first_.empty()) first_ = batch_.y;
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < first_.size(); ++i) {
      difference += std::pow(double{batch_.y[i]} - double{first_[i]}, 2);
      size += std::pow(double{first_[i]}, 2);
    }
    const double drift = std::sqrt(difference / size);
    if (drift <= kDriftMax) return absl::OkStatus();  // false for NaN
    return absl::InternalError(absl::StrCat("the answer is off by ", drift));
  }

 private:
  Batch batch_;
  std::vector<float> first_;
};

class LifecycleTest : public Processes, public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    LocalDeploymentOptions options;
    options.min_workers = 2;
    options.coordinator_flags = {"--store", "sqlite:" + folder_.Join("store")};
    Deploy(3, std::move(options));
    ASSERT_NE(deployment_, nullptr);
    SY_ASSERT_OK_AND_ASSIGN(client_, Connect(GetParam()));
    for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
      OpenSessionRequest order;
      order.phase = phase;
      order.step_deadline = std::chrono::seconds(30);
      SY_ASSERT_OK_AND_ASSIGN(auto session, client_->OpenWhenReady(order, testing::kReadyTimeout));
      sessions_.push_back(std::move(session));
    }
    ASSERT_TRUE(WaitForWorkers(*sessions_[0], 3));
    loads_.push_back(std::make_unique<StepLoad>([this] { return decode_.Run(*sessions_[0]); }));
    loads_.push_back(std::make_unique<StepLoad>([this] { return prefill_.Run(*sessions_[1]); }));
  }
  void TearDown() override {
    loads_.clear();
    sessions_.clear();
    client_.reset();
  }

  ProgramResult Syctl(std::vector<std::string> words) {
    words.insert(words.begin(), {absl::StrCat(testing::kBinDir, "/syctl"), "--target",
                                 deployment_->coordinator()});
    return testing::RunProgram(words, kProgramMax);
  }
  // A command that succeeds.
  std::string Do(const std::vector<std::string>& words) {
    const ProgramResult result = Syctl(words);
    EXPECT_EQ(result.code, 0) << absl::StrJoin(words, " ") << ": " << result.err;
    return result.out;
  }
  std::string StateOf(const std::string& worker) {
    const Json list = Json::parse(Do({"get", "workers"}));
    for (const Json& each : list["workers"]) {
      if (each["id"] == worker) return each["state"];
    }
    return "none";
  }
  std::size_t Workers() { return sessions_[0]->Grant()->plan.workers.size(); }
  // Both sessions have done another step since.
  void ExpectStepsGoOn() {
    for (const auto& load : loads_) {
      const int before = load->steps();
      EXPECT_TRUE(WaitUntil([&] { return load->steps() > before + 1; }));
    }
  }
  template <typename Condition>
  bool WaitUntil(Condition met) {
    const auto until = std::chrono::steady_clock::now() + testing::kReadyTimeout;
    const MutexLock lock(mutex_);
    while (!met() && std::chrono::steady_clock::now() < until) {
      never_.WaitUntil(mutex_, std::chrono::steady_clock::now() + std::chrono::milliseconds(5));
    }
    return met();
  }
  void ExpectNoStepFailed() {
    for (const auto& load : loads_) {
      load->Stop();
      SY_EXPECT_OK(load->first_error());
      EXPECT_EQ(load->failed(), 0) << "of " << load->steps();
    }
  }
  void ApplyOther() {
    const std::string file = folder_.Join("other.yaml");
    std::ofstream(file) << "name: other\ncheckpoint: " << testing::kShippedModel << "\n";
    EXPECT_THAT(Do({"apply", "-f", file, "--wait", "-o", "table"}), HasSubstr("serving"));
  }
  absl::StatusOr<std::unique_ptr<MoeSession>> OpenOther() {
    OpenSessionRequest order;
    order.deployment = "other";
    order.phase = Phase::kDecode;
    return client_->Open(order);
  }

  const testing::TempDir folder_;
  Mutex mutex_;
  CondVar never_;  // notified by nobody
  std::unique_ptr<Client> client_;
  std::vector<std::unique_ptr<MoeSession>> sessions_;
  SameBatch decode_{4, 1};
  SameBatch prefill_{512, 2};
  std::vector<std::unique_ptr<StepLoad>> loads_;
};

TEST_P(LifecycleTest, WorkersAreDrainedReplacedAndTakenBack) {
  EXPECT_EQ(Do({"drain", "worker", "w2", "--wait", "-o", "table"}), "worker w2 is drained\n");
  EXPECT_EQ(StateOf("w2"), "drained");
  EXPECT_TRUE(WaitForWorkers(*sessions_[0], 2));
  ExpectStepsGoOn();

  // It holds nothing, so that its end disturbs nobody and takes no time.
  deployment_->worker_process(2).Signal(SIGTERM);
  SY_ASSERT_OK_AND_ASSIGN(const int status,
                          deployment_->worker_process(2).Wait(std::chrono::seconds(10)));
  EXPECT_EQ(status, 0);
  SY_ASSERT_OK(deployment_->RestartWorker(2));
  ASSERT_TRUE(WaitUntil([&] { return StateOf("w2") == "drained"; })) << "a new process, same id";

  Do({"uncordon", "w2"});
  Do({"wait", "worker/w2", "--for", "live"});
  EXPECT_TRUE(WaitForWorkers(*sessions_[0], 3));
  ExpectStepsGoOn();
  ExpectNoStepFailed();
}

TEST_P(LifecycleTest, ACordonSurvivesTheCoordinator) {
  Do({"cordon", "worker", "w1"});
  EXPECT_EQ(StateOf("w1"), "cordoned");

  deployment_->coordinator_process().Signal(SIGKILL);
  SY_ASSERT_OK(deployment_->coordinator_process().Wait(kProgramMax));
  SY_ASSERT_OK(deployment_->RestartCoordinator());
  Do({"wait", "deployment", "local", "--for", "serving"});
  EXPECT_EQ(StateOf("w1"), "cordoned");

  ApplyOther();
  const Json plan = Json::parse(Do({"get", "plan", "--deployment", "other"}));
  for (const Json& worker : plan["plan"]["workers"]) EXPECT_NE(worker["id"], "w1");
  EXPECT_EQ(Workers(), 3U) << "it stays where it served";
  Do({"uncordon", "worker", "w1"});
  ExpectStepsGoOn();
  ExpectNoStepFailed();
}

TEST_P(LifecycleTest, AnotherDeploymentIsDeleted) {
  ApplyOther();
  SY_ASSERT_OK_AND_ASSIGN(std::unique_ptr<MoeSession> session, OpenOther());
  Batch batch(4, 7);

  EXPECT_EQ(Do({"delete", "deployment", "other", "-o", "table"}),
            "deployment other is being deleted; 1 session is open\n");
  EXPECT_THAT(OpenOther(), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
  const ProgramResult waited =
      Syctl({"wait", "deployment/other", "--for", "deleted", "--timeout", "1"});
  EXPECT_EQ(waited.code, 1);
  EXPECT_THAT(waited.err, HasSubstr("1 session"));
  SY_EXPECT_OK(RunStep(*session, batch, kLayer));

  session.reset();
  Do({"wait", "deployment/other", "--for", "deleted"});
  EXPECT_EQ(Syctl({"describe", "deployment", "other"}).code, 1);
  // Applied again, it is another one.
  ApplyOther();
  SY_ASSERT_OK_AND_ASSIGN(session, OpenOther());
  SY_EXPECT_OK(RunStep(*session, batch, kLayer));

  // At once: the session ends with the reason, whether it runs a step or not.
  EXPECT_EQ(Do({"delete", "deployment", "other", "--now", "--wait", "-o", "table"}),
            "deployment other is deleted\n");
  EXPECT_TRUE(WaitUntil([&] {
    return ReasonOf(RunStep(*session, batch, kLayer)) == Reason::kUnknownModel;
  })) << RunStep(*session, batch, kLayer);
  ExpectStepsGoOn();
  ExpectNoStepFailed();
}

TEST_P(LifecycleTest, WhatWouldNotFitIsRefused) {
  Do({"drain", "w1", "--wait"});
  Do({"drain", "w2", "--wait"});

  const ProgramResult last = Syctl({"drain", "w0"});
  EXPECT_EQ(last.code, 1);
  EXPECT_THAT(last.err, HasSubstr("without it deployment local"));

  Do({"uncordon", "w1"});
  Do({"uncordon", "w2"});
  EXPECT_TRUE(WaitForWorkers(*sessions_[0], 3));
  ExpectStepsGoOn();
  ExpectNoStepFailed();
}

INSTANTIATE_TEST_SUITE_P(Transport, LifecycleTest, ::testing::Values("shm", "tcp", "gateway"),
                         [](const auto& each) { return std::string(each.param); });

}  // namespace
}  // namespace switchyard
