// A former model that is kept for its sessions, through a whole coordinator.
#include "coordinator/serving_epoch.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::MakeSpec;

class FormerModelTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster.models["/models/n"] = testing::MakeFacts({.weights = 2});
    for (const char* id : {"w0", "w1"}) cluster.Join(id);
    SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));
    ASSERT_EQ(cluster.Serving(), 1U);
    SY_ASSERT_OK_AND_ASSIGN(grant_, cluster.OpenDecode());
    watch_ =
        cluster.Watch({grant_.session, "demo", Phase::kDecode, grant_.plan.epoch, grant_.hash});
  }
  // Applies the other model, or the first one again.
  void Apply(const std::string& checkpoint, Duration kept) {
    DeploymentSpec spec = MakeSpec(2);
    spec.checkpoint = checkpoint;
    spec.former_model_kept = kept;
    SY_ASSERT_OK(cluster.Apply(spec));
    cluster.Advance(milliseconds(200));
  }
  [[nodiscard]] std::size_t Retired(const std::string& worker) {
    return cluster.worker(worker).Got<Retire>().size();
  }
  [[nodiscard]] const std::vector<PlanUpdate>& News() { return cluster.news[watch_]; }

  Cluster cluster;
  SessionGrant grant_;
  WatchId watch_;
};

TEST_F(FormerModelTest, EndsAtOnceUnlessTheDeploymentKeepsIt) {
  Apply("/models/n", {});

  ASSERT_EQ(cluster.Serving(), 2U);
  ASSERT_EQ(News().size(), 1U);
  EXPECT_EQ(News()[0].former_kept, Duration::zero());
  EXPECT_EQ(Retired("w0"), 1U);
}

TEST_F(FormerModelTest, IsKeptUntilItsTimeIsOver) {
  Apply("/models/n", seconds(30));

  ASSERT_EQ(cluster.Serving(), 2U);
  ASSERT_EQ(News().size(), 1U);
  EXPECT_EQ(News()[0].former_kept, seconds(30));
  cluster.Advance(seconds(29));
  EXPECT_EQ(Retired("w0"), 0U);
  EXPECT_THAT(
      cluster.Deployment().activity,
      HasSubstr("serving epoch 2; 1 session goes on with the former model, epoch 1, for 1 s"));

  cluster.Advance(seconds(1));

  ASSERT_EQ(News().size(), 2U);
  EXPECT_EQ(News()[1].plan.epoch, Epoch{2});
  EXPECT_EQ(News()[1].former_kept, Duration::zero());
  EXPECT_EQ(Retired("w0"), 1U);
  EXPECT_EQ(Retired("w1"), 1U);
  // A source that dials only now hears it too.
  const WatchId late =
      cluster.Watch({grant_.session, "demo", Phase::kDecode, grant_.plan.epoch, grant_.hash});
  ASSERT_EQ(cluster.news[late].size(), 1U);
  EXPECT_EQ(cluster.news[late][0].former_kept, Duration::zero());
}

TEST_F(FormerModelTest, EndsWithItsLastSession) {
  Apply("/models/n", std::chrono::hours(1));
  SY_ASSERT_OK(cluster.OpenDecode());  // of the new model
  cluster.Advance(seconds(1));
  EXPECT_EQ(Retired("w0"), 0U);

  cluster.Step(SessionEnded{RequestId{9}, grant_.session});
  cluster.Advance(seconds(1));

  EXPECT_EQ(Retired("w0"), 1U);
  EXPECT_EQ(cluster.Serving(), 2U);
}

TEST_F(FormerModelTest, NobodyOnItMeansNobodyToWaitFor) {
  cluster.Step(SessionEnded{RequestId{9}, grant_.session});

  Apply("/models/n", std::chrono::hours(1));

  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_EQ(Retired("w0"), 1U);
}

TEST_F(FormerModelTest, AJoinWaitsForIt) {
  Apply("/models/n", seconds(30));
  cluster.Join("w2");
  cluster.Advance(seconds(20));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1");

  cluster.Advance(seconds(12));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
}

TEST_F(FormerModelTest, DoesNotHoldUpALeave) {
  cluster.Join("w2");
  cluster.Advance(seconds(1));
  Apply("/models/n", std::chrono::hours(1));
  ASSERT_EQ(Retired("w0"), 1U);  // of epoch 1

  cluster.Say(cluster.worker("w1"), Leave{});
  cluster.Advance(seconds(2));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");
  EXPECT_EQ(News().back().former_kept, Duration::zero());
}

TEST_F(FormerModelTest, DoesNotHoldUpALeaveOfAWorkerThatTheNewModelDoesNotUse) {
  cluster.Join("w2");
  cluster.Advance(seconds(1));
  FakeWorker& worker = cluster.worker("w1");
  worker.capabilities.schemes.clear();
  cluster.BreakStream("w1");
  cluster.Register(worker);
  Apply("/models/n", std::chrono::hours(1));
  ASSERT_EQ(cluster.ServingWorkers(), "w0 w2");
  ASSERT_GT(News().back().former_kept, Duration::zero());

  cluster.Say(worker, Leave{});
  cluster.Advance(seconds(2));

  EXPECT_EQ(News().back().former_kept, Duration::zero());
  EXPECT_EQ(worker.Got<Goodbye>().size(), 1U);
}

TEST_F(FormerModelTest, DoesNotHoldUpTheReplacementOfALostWorker) {
  cluster.Join("w2");
  cluster.Advance(seconds(1));
  Apply("/models/n", std::chrono::hours(1));

  cluster.BreakStream("w1");
  cluster.Advance(seconds(2));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");
}

TEST_F(FormerModelTest, OtherConfigsOfOneModelKeepNothing) {
  DeploymentSpec spec = MakeSpec(2);
  spec.former_model_kept = std::chrono::hours(1);
  spec.max_tokens_per_step = 64;
  SY_ASSERT_OK(cluster.Apply(spec));
  cluster.Advance(milliseconds(200));

  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_EQ(News().back().former_kept, Duration::zero());
  EXPECT_EQ(Retired("w0"), 1U);
}

TEST_F(FormerModelTest, ARestartOfTheCoordinatorEndsIt) {
  Apply("/models/n", std::chrono::hours(1));
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  for (const char* id : {"w0", "w1"}) cluster.Register(cluster.worker(id));

  const WatchId again =
      cluster.Watch({grant_.session, "demo", Phase::kDecode, grant_.plan.epoch, grant_.hash});
  cluster.Advance(seconds(13));

  ASSERT_EQ(cluster.news[again].size(), 1U);
  EXPECT_EQ(cluster.news[again][0].former_kept, Duration::zero());
  EXPECT_EQ(Retired("w0"), 1U);
}

}  // namespace
}  // namespace switchyard
