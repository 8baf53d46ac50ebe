// An operator drains, cordons, deletes, rolls back, replaces a worker and restarts the coordinator
// with syctl, while a client's sessions compute: no step fails, and what each verb says is true.
#include "tests/e2e/lifecycle.h"

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

#include "tests/e2e/batch.h"

namespace switchyard {
namespace {

using testing::Batch;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::Json;
using testing::kProgramMax;
using ::testing::Not;
using testing::ProgramResult;
using testing::RunStep;
using testing::StepLoad;

constexpr std::int32_t kLayer = 0;

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

class LifecycleTest : public testing::Lifecycle {
 protected:
  void SetUp() override {
    Lifecycle::SetUp();
    if (HasFatalFailure()) return;
    loads_.push_back(std::make_unique<StepLoad>([this] { return decode_.Run(*sessions_[0]); }));
    loads_.push_back(std::make_unique<StepLoad>([this] { return prefill_.Run(*sessions_[1]); }));
  }

  SameBatch decode_{4, 1};
  SameBatch prefill_{512, 2};
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

TEST_P(LifecycleTest, ADeploymentIsRolledBack) {
  const auto states = [this] {
    std::vector<std::string> all;
    const Json list = Json::parse(Do({"get", "revisions", "local"}));
    for (const Json& each : list["revisions"]) all.push_back(each["state"]);
    return absl::StrJoin(all, " ");
  };
  EXPECT_EQ(states(), "serving");
  // The phases of the sessions stay as they are.
  const std::string file =
      WriteFile(absl::StrCat("name: local\ncheckpoint: ", testing::kShippedModel,
                             "\nmin_workers: 2\nphases:\n  - phase: prefill\n  - phase: decode\n"));
  const std::string with_mixed = "normal bf16  low_latency bf16  normal bf16";
  const ProgramResult differs = Syctl({"diff", "-f", file, "-o", "table"});
  EXPECT_EQ(differs.code, 1) << differs.err;
  EXPECT_THAT(differs.out, HasSubstr("- phases[mixed].phase: mixed"));
  EXPECT_THAT(differs.out, HasSubstr("- layers 0-3, mixed, cpu -> cpu: normal bf16"));
  EXPECT_THAT(Do({"get", "layers", "-o", "table"}), HasSubstr(with_mixed));

  Do({"apply", "-f", file, "--wait"});
  EXPECT_EQ(Syctl({"diff", "-f", file}).code, 0);
  EXPECT_EQ(states(), "former serving");
  EXPECT_THAT(Do({"get", "layers", "-o", "table"}), Not(HasSubstr(with_mixed)));
  ExpectStepsGoOn();

  EXPECT_EQ(Do({"rollback", "deployment", "local", "--wait", "-o", "table"}),
            "deployment local is rolled back as revision 3, which serves\n");
  EXPECT_EQ(states(), "former former serving");
  EXPECT_THAT(Do({"get", "layers", "-o", "table"}), HasSubstr(with_mixed));
  ExpectStepsGoOn();

  deployment_->coordinator_process().Signal(SIGKILL);
  SY_ASSERT_OK(deployment_->coordinator_process().Wait(kProgramMax));
  SY_ASSERT_OK(deployment_->RestartCoordinator());
  Do({"wait", "deployment", "local", "--for", "serving"});
  EXPECT_EQ(states(), "former former serving");
  Do({"rollback", "deployment", "local", "--to-revision", "2", "--wait"});
  EXPECT_EQ(states(), "former former former serving");
  EXPECT_THAT(Do({"get", "layers", "-o", "table"}), Not(HasSubstr(with_mixed)));
  const ProgramResult unknown = Syctl({"rollback", "deployment", "local", "--to-revision", "9"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("these are kept: 1, 2, 3, 4"));
  ExpectStepsGoOn();
  ExpectNoStepFailed();
}

// The revision has the hashes of its weights: it serves them or nothing.
TEST_P(LifecycleTest, ARollbackToAFolderThatWasOverwrittenServesNothingElse) {
  const std::string model = folder_.Join("model");
  std::filesystem::copy(testing::kShippedModel, model, std::filesystem::copy_options::recursive);
  const auto overwrite = [&model](char with) {
    const std::string weights = model + "/model.safetensors";
    std::fstream file(weights, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(std::filesystem::file_size(weights) / 2));
    file << std::string(200'000, with);
  };
  // Other weights than those of the deployment that serves: workers share what they hold.
  overwrite('\x11');
  const std::string first = absl::StrCat("name: other\ncheckpoint: ", model, "\n");
  Do({"apply", "-f", WriteFile(first), "--wait"});
  const std::string second =
      "name: other\n"
      "checkpoint: \"synthetic:seed=1,hidden=64,intermediate=32,experts=8,top_k=2,layers=1\"\n";
  Do({"apply", "-f", WriteFile(second), "--wait"});
  overwrite('\x22');

  const ProgramResult back = Syctl({"rollback", "deployment", "other", "--wait", "--timeout", "3"});

  EXPECT_EQ(back.code, 1);
  EXPECT_THAT(back.err, HasSubstr("the deployment's manifest has"));
  const Json other = Json::parse(Do({"get", "deployment", "other"}))["deployments"][0];
  EXPECT_EQ(other["state"], "serving");
  EXPECT_EQ(other["serving_revision"], 2);
  ASSERT_TRUE(other.contains("problem"));
  EXPECT_EQ(other["problem"]["reason"], "WEIGHT_HASH");
  Do({"rollback", "deployment", "other", "--to-revision", "2", "--wait"});
  ExpectStepsGoOn();
  ExpectNoStepFailed();
}

TEST_P(LifecycleTest, WhatHappensAndWhoIsThereIsListed) {
  Json sessions = Json::parse(Do({"get", "sessions", "local"}))["sessions"];
  ASSERT_EQ(sessions.size(), 2U);
  EXPECT_EQ(sessions[0]["source"], "cpu");
  EXPECT_NE(sessions[0]["peer"], "");
  const ProgramResult unknown = Syctl({"get", "sessions", "other", "-o", "table"});
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("unknown deployment other; known: local"));
  if (std::string(GetParam()) != "gateway") {
    // Steps that a gateway runs on its own experts are not requests.
    const Json busy = Json::parse(Do({"top"}));
    EXPECT_EQ(busy["workers"].size(), 3U);
    for (const Json& worker : busy["workers"]) {
      EXPECT_GT(worker["rows_per_second"], 0) << worker;
      EXPECT_GT(worker["rows_per_batch"], 0) << worker;
      EXPECT_EQ(worker["errors"], 0) << worker;
      EXPECT_EQ(worker["attachments"], 2) << worker;
    }
  }
  Do({"drain", "worker", "w2", "--wait"});

  const std::string events = Do({"get", "events", "-o", "table"});
  for (const char* reason : {"Joined", "Applied", "EpochPreparing", "EpochServing", "Draining"}) {
    EXPECT_THAT(events, HasSubstr(reason));
  }
  const Json of_worker = Json::parse(Do({"get", "events", "w2"}))["events"];
  EXPECT_EQ(of_worker[of_worker.size() - 1]["reason"], "Draining");
  ExpectStepsGoOn();
  ExpectNoStepFailed();
}

TEST_P(LifecycleTest, WhatCanNeverBeServedSaysSoAndDisturbsNothing) {
  const std::string experts = ",hidden=64,intermediate=32,experts=64,top_k=40,layers=1";
  const std::string wide = absl::StrCat("checkpoint: \"synthetic:seed=1", experts, "\"\n");

  const ProgramResult fresh = Syctl({"apply", "-f", WriteFile("name: wide\n" + wide)});
  EXPECT_EQ(fresh.code, 1);
  EXPECT_THAT(fresh.err, HasSubstr("BAD_TOP_K"));
  const Json one = Json::parse(Do({"get", "deployment", "wide"}))["deployments"][0];
  EXPECT_EQ(one["state"], "refused");
  EXPECT_EQ(one["problem"]["reason"], "BAD_TOP_K");
  EXPECT_THAT(Syctl({"get", "plan", "wide"}).err, HasSubstr("BAD_TOP_K"));

  // What serves is served on, also by other workers.
  EXPECT_EQ(Syctl({"apply", "-f", WriteFile("name: local\n" + wide)}).code, 1);
  Do({"drain", "worker", "w2", "--wait"});
  EXPECT_TRUE(WaitForWorkers(*sessions_[0], 2));
  const Json local = Json::parse(Do({"get", "deployment", "local"}))["deployments"][0];
  EXPECT_EQ(local["state"], "serving");
  EXPECT_EQ(local["current"], false);
  EXPECT_EQ(local["problem"]["reason"], "BAD_TOP_K");
  EXPECT_EQ(local["serving_revision"], 1);
  ExpectStepsGoOn();

  Do({"rollback", "deployment", "local", "--wait"});
  EXPECT_EQ(Json::parse(Do({"get", "deployment", "local"}))["deployments"][0]["current"], true);
  Do({"delete", "deployment", "wide", "--wait"});
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
