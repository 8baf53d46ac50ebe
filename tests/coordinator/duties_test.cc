// Workers that an operator cordons, drains and uncordons.
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::MakeSpec;

class DutyTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"w0", "w1", "w2"}) cluster.Join(id);
    SY_ASSERT_OK(cluster.Apply(MakeSpec(3)));
    ASSERT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  }
  Cluster cluster;
};

TEST_F(DutyTest, ADrainedWorkerServesUntilTheOthersDoAndThenHoldsNothing) {
  cluster.worker("w0").prepares = Answers::kNothing;

  SY_ASSERT_OK_AND_ASSIGN(const DutyView view, cluster.SetDuty("w2", WorkerDuty::kDraining));
  EXPECT_EQ(view.worker->state, WorkerState::kDraining);
  EXPECT_THAT(view.warnings, ::testing::ElementsAre(HasSubstr("fewer than its min_workers, 3")));
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2") << "the new plan is not there yet";
  EXPECT_THAT(cluster.Deployment().activity, HasSubstr("experts move; w2 is drained)"));

  const Prepare prepare = cluster.worker("w0").Got<Prepare>().back();
  cluster.worker("w0").resident[{"demo", prepare.plan.epoch}] = {"demo", prepare.plan.epoch,
                                                                 prepare.hash, false};
  cluster.Say(cluster.worker("w0"),
              PrepareAck{"demo", prepare.plan.epoch, prepare.nonce, prepare.hash});
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1");
  EXPECT_TRUE(cluster.worker("w2").resident.empty());
  EXPECT_EQ(cluster.StateOf("w2"), WorkerState::kDrained);
  EXPECT_TRUE(cluster.worker("w2").Got<Goodbye>().empty()) << "its process goes on";
  EXPECT_THAT(cluster.Deployment().left_out,
              ::testing::ElementsAre("w2: is drained by an operator"));
}

TEST_F(DutyTest, UncordonBringsItBack) {
  SY_ASSERT_OK(cluster.SetDuty("w2", WorkerDuty::kDraining));
  cluster.Advance(seconds(1));

  SY_ASSERT_OK(cluster.SetDuty("w2", WorkerDuty::kServe));
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  EXPECT_EQ(cluster.StateOf("w2"), WorkerState::kLive);
}

TEST_F(DutyTest, SeveralDrainsInARowShareOneEpoch) {
  SY_ASSERT_OK(cluster.SetDuty("w1", WorkerDuty::kDraining));
  SY_ASSERT_OK(cluster.SetDuty("w2", WorkerDuty::kDraining));
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.ServingWorkers(), "w0");
  EXPECT_EQ(cluster.Serving(), 2U);
}

TEST_F(DutyTest, ACordonedWorkerStaysWhereItServesAndIsTakenInNowhereElse) {
  SY_ASSERT_OK(cluster.SetDuty("w2", WorkerDuty::kCordoned));
  cluster.Join("w3");
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2 w3");
  EXPECT_EQ(cluster.StateOf("w2"), WorkerState::kCordoned);

  DeploymentSpec other = MakeSpec(1);
  other.name = "other";
  SY_ASSERT_OK(cluster.Apply(other));
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.ServingWorkers("other"), "w0 w1 w3");
  EXPECT_THAT(cluster.Deployment("other").left_out,
              ::testing::Contains("w2: is cordoned by an operator"));
}

// A new process under the id, as after a repair that is not over.
TEST_F(DutyTest, TheDutyBelongsToTheIdAndSurvivesBothEnds) {
  SY_ASSERT_OK(cluster.SetDuty("w2", WorkerDuty::kDraining));
  cluster.Advance(seconds(1));
  cluster.Restart("w2");
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.StateOf("w2"), WorkerState::kDrained);

  cluster.StopCoordinator();
  cluster.StartCoordinator();
  for (const char* id : {"w0", "w1", "w2"}) cluster.Register(cluster.worker(id));
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.StateOf("w2"), WorkerState::kDrained);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1");
}

TEST_F(DutyTest, TakesEffectOnlyOnceItIsStored) {
  cluster.write_status = MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk");

  EXPECT_THAT(cluster.SetDuty("w2", WorkerDuty::kDraining),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kStoreWrite));

  cluster.write_status = absl::OkStatus();
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.StateOf("w2"), WorkerState::kLive);
  EXPECT_EQ(cluster.Serving(), 1U);
}

TEST_F(DutyTest, AnUnknownWorkerIsSaid) {
  const auto unknown = FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownWorker);
  EXPECT_THAT(cluster.SetDuty("w9", WorkerDuty::kDraining), unknown);
  EXPECT_THAT(cluster.SetDuty("w9", WorkerDuty::kCordoned), unknown);
  EXPECT_THAT(cluster.SetDuty("w9", WorkerDuty::kServe), unknown);
}

TEST_F(DutyTest, OneThatIsAwayCanBeUncordoned) {
  SY_ASSERT_OK(cluster.SetDuty("w2", WorkerDuty::kDraining));
  cluster.Advance(seconds(1));
  cluster.BreakStream("w2");
  cluster.Advance(seconds(1));

  SY_ASSERT_OK_AND_ASSIGN(const DutyView view, cluster.SetDuty("w2", WorkerDuty::kServe));
  EXPECT_FALSE(view.worker.has_value());
  cluster.Restart("w2");
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
}

TEST(DrainTest, SaysWhatWouldNotFitAndDrainsAllTheSameWhenForced) {
  Cluster cluster;
  const std::int64_t bytes = cluster.models["/models/m"].ExpertBytes();
  const auto experts = static_cast<std::int64_t>(testing::MakeFacts().shape.experts) *
                       static_cast<std::int64_t>(testing::MakeFacts().layers.size());
  cluster.Join("w0", experts * bytes * 3 / 4);
  cluster.Join("w1", experts * bytes * 3 / 4);
  SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));
  ASSERT_EQ(cluster.ServingWorkers(), "w0 w1");

  const auto refused = cluster.SetDuty("w1", WorkerDuty::kDraining);
  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kNotReady));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("without it deployment demo"));
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.StateOf("w1"), WorkerState::kLive);

  SY_ASSERT_OK_AND_ASSIGN(const DutyView forced,
                          cluster.SetDuty("w1", WorkerDuty::kDraining, /*force=*/true));
  EXPECT_EQ(forced.warnings.size(), 1U);
  cluster.Advance(seconds(5));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1") << "it serves on until others can";
  EXPECT_EQ(cluster.StateOf("w1"), WorkerState::kDraining);

  cluster.Join("w2", experts * bytes);
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");
  EXPECT_EQ(cluster.StateOf("w1"), WorkerState::kDrained);
}

}  // namespace
}  // namespace switchyard
