// Waits of syctl, against a coordinator whose answers change while it looks.
#include "ctl/waiting.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/ctl/scripted_coordinator.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::FailsWith;
using switchyard::testing::ScriptedCoordinator;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class WaitingTest : public ::testing::Test {
 protected:
  // Waits for at most `seconds`.
  Waiting For(double seconds) {
    return {&client_, std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds)),
            [this](const std::string& line) { lines_.push_back(line); }};
  }
  v1::Deployment& deployment() { return *coordinator_.deployments.mutable_deployments(0); }
  v1::Worker& w0() { return *coordinator_.workers.mutable_workers(0); }
  // Calls `change` before the second answer.
  void Then(std::function<void()> change) {
    coordinator_.on_get = [this, change = std::move(change)] {
      if (++looks_ == 2) change();
    };
  }

  ScriptedCoordinator coordinator_;
  CoordinatorClient client_{coordinator_.endpoint(), std::chrono::seconds(5)};
  std::vector<std::string> lines_;
  int looks_ = 0;
};

TEST_F(WaitingTest, ForWhatServesAndIsWhatWasApplied) {
  deployment().set_state(v1::DEPLOYMENT_STATE_SERVING);  // of the specification before
  deployment().set_current(false);
  deployment().set_activity("preparing epoch 4");
  Then([this] { deployment().set_current(true); });

  SY_EXPECT_OK(WaitForDeployment(For(20), "local", Condition::kServing));
  EXPECT_EQ(looks_, 2);
  EXPECT_THAT(lines_, ElementsAre("deployment local: preparing epoch 4"));
}

TEST_F(WaitingTest, AProblemThatNoWorkerCanSolveEndsIt) {
  deployment().set_current(false);
  *deployment().mutable_problem() = StatusToProto(
      MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadConfig, "top_k is too large"));

  EXPECT_THAT(WaitForDeployment(For(20), "local", Condition::kServing),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
  EXPECT_THAT(WaitForDeployment(For(20), "unknown", Condition::kServing),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

TEST_F(WaitingTest, ATimeoutSaysWhatItStillWaitsFor) {
  deployment().set_current(false);
  deployment().set_activity("waiting for workers");

  const absl::Status status = WaitForDeployment(For(0.01), "local", Condition::kServing);
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("deployment local: not within 0.01 s: waiting for workers"));
}

TEST_F(WaitingTest, ForADeploymentThatGoes) {
  deployment().set_state(v1::DEPLOYMENT_STATE_DELETING);
  deployment().set_sessions(2);
  Then([this] { coordinator_.deployments.clear_deployments(); });

  SY_EXPECT_OK(WaitForDeployment(For(20), "local", Condition::kDeleted));
  EXPECT_THAT(lines_, ElementsAre("deployment local: open: 2 sessions"));
}

TEST_F(WaitingTest, AnotherOneOfItsNameIsNotWaitedFor) {
  deployment().set_state(v1::DEPLOYMENT_STATE_DELETING);
  Then([this] { deployment().set_state(v1::DEPLOYMENT_STATE_SERVING); });
  SY_EXPECT_OK(WaitForDeployment(For(20), "local", Condition::kDeleted));
  EXPECT_EQ(looks_, 2);

  Waiting waiting = For(20);
  waiting.agreed = true;
  SY_EXPECT_OK(WaitForDeployment(waiting, "local", Condition::kDeleted));
}

TEST_F(WaitingTest, OneThatGoesDoesNotServe) {
  deployment().set_state(v1::DEPLOYMENT_STATE_DELETING);
  deployment().set_current(true);

  EXPECT_THAT(WaitForDeployment(For(20), "local", Condition::kServing),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kNotReady));
}

TEST_F(WaitingTest, OneThatNobodyDeletesIsNotWaitedFor) {
  deployment().set_state(v1::DEPLOYMENT_STATE_SERVING);

  EXPECT_THAT(WaitForDeployment(For(20), "local", Condition::kDeleted),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest));
}

TEST_F(WaitingTest, ForAWorkerThatIsDrained) {
  w0().set_state(v1::WORKER_STATE_DRAINING);
  Then([this] { w0().set_state(v1::WORKER_STATE_DRAINED); });

  SY_EXPECT_OK(WaitForWorker(For(20), "w0", Condition::kDrained));
  EXPECT_EQ(lines_.size(), 1U);
}

TEST_F(WaitingTest, AWorkerThatLeavesWhileItIsDrainedHoldsNothing) {
  w0().set_state(v1::WORKER_STATE_DRAINING);
  Then([this] {
    coordinator_.workers.clear_workers();
    coordinator_.plan.mutable_plan()->clear_workers();
  });

  SY_EXPECT_OK(WaitForWorker(For(20), "w0", Condition::kDrained));
}

// A coordinator that has restarted lists workers as they come back.
TEST_F(WaitingTest, AWorkerThatAPlanNamesIsNotDrainedByBeingAway) {
  Waiting waiting = For(20);
  waiting.agreed = true;
  const v1::ListWorkersResponse all = coordinator_.workers;
  coordinator_.workers.clear_workers();
  Then([this, all] {
    coordinator_.workers = all;
    w0().set_state(v1::WORKER_STATE_DRAINED);
  });

  SY_EXPECT_OK(WaitForWorker(waiting, "w0", Condition::kDrained));
  EXPECT_THAT(lines_, ElementsAre("worker w0: it is not there, and the plan of deployment local "
                                  "names it"));
}

TEST_F(WaitingTest, AWorkerThatIsNotDrainedOrNotThereIsNotWaitedFor) {
  w0().set_state(v1::WORKER_STATE_CORDONED);
  EXPECT_THAT(WaitForWorker(For(20), "w0", Condition::kDrained),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest));
  EXPECT_THAT(WaitForWorker(For(20), "w9", Condition::kDrained),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownWorker));
}

TEST_F(WaitingTest, WaitingForACordonedWorkerToBeLiveSaysWhatMakesItSo) {
  w0().set_state(v1::WORKER_STATE_CORDONED);

  const absl::Status status = WaitForWorker(For(0.01), "w0", Condition::kLive);

  EXPECT_THAT(status, FailsWith(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("cordoned; 'syctl uncordon worker w0' makes it live"));
}

TEST_F(WaitingTest, ForAWorkerThatJoins) {
  const v1::ListWorkersResponse joined = coordinator_.workers;
  coordinator_.workers.clear_workers();
  Then([this, joined] {
    coordinator_.workers = joined;
    w0().set_state(v1::WORKER_STATE_LIVE);
  });

  SY_EXPECT_OK(WaitForWorker(For(20), "w0", Condition::kLive));
  EXPECT_THAT(lines_, ElementsAre("worker w0: it has not joined"));
}

TEST_F(WaitingTest, ACordonWaitsForWhatWasPlannedBefore) {
  w0().set_state(v1::WORKER_STATE_CORDONED);
  w0().add_staging()->set_step(v1::STAGING_STEP_LOADING);
  Then([this] { w0().clear_staging(); });

  SY_EXPECT_OK(WaitForWorker(For(20), "w0", Condition::kCordoned));
  EXPECT_THAT(lines_, ElementsAre("worker w0: it loads 1 epoch"));
  SY_EXPECT_OK(WaitForWorker(For(20), "w9", Condition::kCordoned)) << "no plan can use it";

  w0().set_state(v1::WORKER_STATE_LIVE);
  EXPECT_THAT(WaitForWorker(For(20), "w0", Condition::kCordoned),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kNotReady));
}

// As during a restart.
TEST(WaitingWithoutCoordinatorTest, ItWaitsOn) {
  CoordinatorClient nobody("127.0.0.1:1", std::chrono::seconds(5));
  EXPECT_THAT(WaitForDeployment({&nobody, std::chrono::milliseconds(700), nullptr}, "local",
                                Condition::kServing),
              FailsWith(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady));
}

}  // namespace
}  // namespace switchyard::ctl
