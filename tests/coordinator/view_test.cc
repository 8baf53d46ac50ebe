// Changes in progress, as an operator sees them.
#include "coordinator/view.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::HasSubstr;
using testing::MakeFacts;
using testing::MakeSpec;

constexpr std::int64_t kMiB = 1 << 20;

// `done` of 4 experts of 1 MiB.
StagingReport Report(std::uint64_t epoch, std::int32_t done) {
  return {"demo", Epoch{epoch}, done, 4, done * kMiB, 4 * kMiB};
}

class ViewTest : public ::testing::Test {
 protected:
  // Epoch 1 serves model m on w0 and w1.
  void SetUp() override {
    cluster.Join("w0");
    cluster.Join("w1");
    SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));
    ASSERT_EQ(cluster.Serving(), 1U);
  }
  static DeploymentSpec OtherModel() {
    DeploymentSpec spec = MakeSpec(2);
    spec.model = "b";
    spec.checkpoint = "/models/b";
    return spec;
  }
  // Workers that load until told otherwise.
  void HoldPrepares() {
    for (const char* id : {"w0", "w1"}) cluster.worker(id).prepares = Answers::kNothing;
  }
  void Acknowledge(const std::string& id) {
    const Prepare prepare = cluster.worker(id).Got<Prepare>().back();
    cluster.worker(id).heartbeat.staging.clear();
    cluster.Say(cluster.worker(id),
                PrepareAck{"demo", prepare.plan.epoch, prepare.nonce, prepare.hash});
  }

  Cluster cluster;
};

TEST_F(ViewTest, SaysHowFarEachWorkerOfAChangeIs) {
  cluster.models["/models/b"] = MakeFacts({.weights = 2});
  HoldPrepares();
  SY_ASSERT_OK(cluster.Apply(OtherModel()));
  cluster.Advance(seconds(1), milliseconds(500));
  ASSERT_EQ(cluster.worker("w0").Got<Prepare>().size(), 2U);
  EXPECT_THAT(cluster.Deployment().activity,
              HasSubstr("waiting for w0 (not begun), w1 (not begun)"));

  for (int done = 0; done <= 2; ++done) {
    cluster.worker("w0").heartbeat.staging = {Report(2, done)};
    cluster.Advance(milliseconds(500), milliseconds(500));
  }

  const DeploymentView view = cluster.Deployment();
  EXPECT_THAT(view.activity, HasSubstr("waiting for w0 (2 of 4 experts, 2.0 of 4.0 MiB, "
                                       "2.0 MiB/s, 1 s left), w1 (not begun)"));
  ASSERT_EQ(view.staging.size(), 2U);
  EXPECT_EQ(view.staging[0].worker, "w0");
  EXPECT_EQ(view.staging[0].step, StagingStep::kLoading);
  EXPECT_EQ(view.staging[0].progress, Report(2, 2));
  EXPECT_EQ(view.staging[0].pace.left, seconds(1));
  EXPECT_EQ(view.staging[1].step, StagingStep::kAsked);

  cluster.Advance(seconds(20), milliseconds(500));
  EXPECT_THAT(cluster.Deployment().activity,
              HasSubstr("w0 (2 of 4 experts, 2.0 of 4.0 MiB, nothing for 20 s), w1"));
  EXPECT_EQ(cluster.Deployment().staging[0].pace.left, std::nullopt);

  Acknowledge("w0");
  EXPECT_THAT(cluster.Deployment().activity, HasSubstr("waiting for w1 (not begun)"));
  EXPECT_EQ(cluster.Deployment().staging[0].step, StagingStep::kPrepared);
  Acknowledge("w1");
  cluster.Advance(milliseconds(100));
  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_TRUE(cluster.Deployment().staging.empty());
}

TEST_F(ViewTest, TheLogSaysEveryTenSecondsHowFarAChangeIs) {
  cluster.models["/models/b"] = MakeFacts({.weights = 2});
  HoldPrepares();
  SY_ASSERT_OK(cluster.Apply(OtherModel()));
  cluster.reports.clear();

  cluster.Advance(seconds(25), milliseconds(500));

  int lines = 0;
  for (const switchyard::Report& report : cluster.reports) {
    const bool late = report.text.find("epoch 2 is not ready: ") != std::string::npos;
    if (late && report.text.find("waiting for w0 (not begun)") != std::string::npos) ++lines;
  }
  EXPECT_EQ(lines, 2);
}

TEST_F(ViewTest, SaysWhatKeepsAWorkerFromLoading) {
  cluster.models["/models/b"] = MakeFacts({.weights = 2});
  HoldPrepares();
  SY_ASSERT_OK(cluster.Apply(OtherModel()));
  cluster.Advance(milliseconds(20));
  StagingReport other = Report(7, 1);
  other.deployment = "other";
  cluster.worker("w0").heartbeat.staging = {other};
  cluster.Advance(milliseconds(20));
  cluster.BreakStream("w1");

  EXPECT_THAT(cluster.Deployment().activity,
              HasSubstr("waiting for w0 (not begun; it loads epoch 7 of other first), "
                        "w1 (disconnected)"));
  EXPECT_EQ(cluster.Deployment().staging[1].step, StagingStep::kWaiting);
  EXPECT_EQ(cluster.Deployment().staging[1].waits_for, "disconnected");
}

TEST_F(ViewTest, TheOneLineNamesFewWorkersAndTheListAll) {
  for (char id = 'a'; id <= 'j'; ++id) {
    cluster.Join(std::string(1, id)).prepares = Answers::kNothing;
  }
  cluster.Advance(seconds(1));

  const DeploymentView view = cluster.Deployment();

  EXPECT_THAT(view.activity, HasSubstr("waiting for a (not begun), b (not begun)"));
  EXPECT_THAT(view.activity, HasSubstr("h (not begun) and 2 more"));
  EXPECT_EQ(view.staging.size(), 12U);
}

TEST_F(ViewTest, AWorkerShowsWhatItLoads) {
  cluster.worker("w1").heartbeat.staging = {Report(9, 1), Report(8, 4)};
  cluster.Advance(milliseconds(10));

  const WorkerView view = cluster.Worker("w1");

  ASSERT_EQ(view.staging.size(), 2U);
  EXPECT_EQ(view.staging[0].step, StagingStep::kLoading);
  EXPECT_EQ(view.staging[0].progress, Report(9, 1));
  EXPECT_EQ(view.staging[1].step, StagingStep::kPrepared);
  EXPECT_TRUE(cluster.Worker("w0").staging.empty());
}

TEST_F(ViewTest, TheModelThatServesIsApartFromTheOneThatComes) {
  const DeploymentView before = cluster.Deployment();
  ASSERT_TRUE(before.served);
  EXPECT_EQ(before.served->name, "m");
  EXPECT_EQ(before.served->checkpoint, "/models/m");
  EXPECT_EQ(before.activity, "serving epoch 1");
  const ModelFacts other = MakeFacts({.experts = 8, .weights = 2});
  cluster.models["/models/b"] = other;
  HoldPrepares();

  SY_ASSERT_OK(cluster.Apply(OtherModel()));

  const DeploymentView view = cluster.Deployment();
  EXPECT_EQ(view.spec.model, "b");
  EXPECT_EQ(view.served->name, "m");
  EXPECT_EQ(view.served->checkpoint, "/models/m");
  EXPECT_EQ(view.served->manifest, before.manifest);
  EXPECT_EQ(view.served->shape.experts, 16);
  EXPECT_EQ(view.served->layers, before.layers);
  EXPECT_THAT(view.activity, HasSubstr("model b is coming: preparing epoch 2 ("));

  Acknowledge("w0");
  Acknowledge("w1");
  cluster.Advance(milliseconds(100));
  EXPECT_EQ(cluster.Deployment().served->name, "b");
  EXPECT_EQ(cluster.Deployment().served->checkpoint, "/models/b");
  EXPECT_EQ(cluster.Deployment().served->manifest, other.manifest.Hash());
  EXPECT_EQ(cluster.Deployment().activity, "serving epoch 2");
}

TEST_F(ViewTest, OtherWeightsUnderTheSameNameAreComingToo) {
  cluster.models["/models/m2"] = MakeFacts({.weights = 2});
  HoldPrepares();
  DeploymentSpec spec = MakeSpec(2);
  spec.checkpoint = "/models/m2";

  SY_ASSERT_OK(cluster.Apply(spec));

  EXPECT_THAT(cluster.Deployment().activity,
              HasSubstr("checkpoint /models/m2 is coming: preparing epoch 2 ("));
  EXPECT_EQ(cluster.Deployment().served->checkpoint, "/models/m");
}

TEST_F(ViewTest, ACoordinatorThatRestartsInBetweenKnowsTheCheckpointThatServes) {
  cluster.models["/models/b"] = MakeFacts({.weights = 2});
  HoldPrepares();
  SY_ASSERT_OK(cluster.Apply(OtherModel()));

  cluster.StopCoordinator();
  cluster.StartCoordinator();

  const DeploymentView view = cluster.Deployment();
  ASSERT_TRUE(view.served);
  EXPECT_EQ(view.served->name, "m");
  EXPECT_EQ(view.served->checkpoint, "/models/m");
  EXPECT_THAT(view.activity, HasSubstr("model b is coming: "));
}

TEST_F(ViewTest, AnApplyThatReadsItsCheckpointShowsHowFarItIs) {
  cluster.models["/models/b"] = MakeFacts({.weights = 2});
  cluster.hold_loads = true;
  const auto waiting = cluster.Apply(OtherModel());
  EXPECT_THAT(waiting.status().message(), HasSubstr("not answered"));
  ASSERT_EQ(cluster.held_loads.size(), 1U);
  const RequestId id = cluster.held_loads[0].id;
  EXPECT_EQ(cluster.Deployment().activity,
            "serving epoch 1; an apply is reading /models/b (not begun)");

  for (int second = 0; second <= 2; ++second) {
    cluster.Step(ModelProgress{id, second * kMiB, 4 * kMiB});
    cluster.now += seconds(second < 2 ? 1 : 0);
  }

  const DeploymentView view = cluster.Deployment();
  EXPECT_EQ(view.state, DeploymentState::kServing);
  EXPECT_EQ(view.activity,
            "serving epoch 1; an apply is reading /models/b (2.0 of 4.0 MiB, 1.0 MiB/s, 2 s left)");
  ASSERT_TRUE(view.reading);
  EXPECT_EQ(view.reading->model, "b");
  EXPECT_EQ(view.reading->bytes_done, 2 * kMiB);
  EXPECT_EQ(view.reading->bytes, 4 * kMiB);
  EXPECT_EQ(view.reading->pace.left, seconds(2));

  cluster.Step(ModelLoaded{id, absl::DataLossError("damaged")});
  EXPECT_FALSE(cluster.Deployment().reading);
  EXPECT_EQ(cluster.Deployment().activity, "serving epoch 1");
  cluster.Step(ModelProgress{id, 0, 0});  // Late: its load is over.
}

TEST_F(ViewTest, TheFirstApplyOfANameIsARowOfItsOwn) {
  cluster.models["/models/b"] = MakeFacts({.weights = 2});
  cluster.hold_loads = true;
  DeploymentSpec first = OtherModel();
  first.name = "another";
  DeploymentSpec dry = OtherModel();
  dry.name = "dry";
  EXPECT_FALSE(cluster.Apply(first).ok());
  EXPECT_FALSE(cluster.Apply(dry, /*dry_run=*/true, /*hash_weights=*/true).ok());

  const CoordinatorView all = cluster.View();

  ASSERT_EQ(all.deployments.size(), 2U) << "a dry run creates nothing";
  const DeploymentView& view = all.deployments[0];
  EXPECT_EQ(view.spec.name, "another");
  EXPECT_EQ(view.spec.model, "b");
  EXPECT_EQ(view.state, DeploymentState::kReading);
  EXPECT_EQ(view.activity, "reading /models/b (not begun)");
  EXPECT_FALSE(view.served);
  EXPECT_EQ(all.deployments[1].spec.name, "demo");
  EXPECT_FALSE(all.deployments[1].reading);
}

TEST_F(ViewTest, ADryRunOfADeploymentThatServesSaysSo) {
  cluster.models["/models/b"] = MakeFacts({.weights = 2});
  cluster.hold_loads = true;
  EXPECT_FALSE(cluster.Apply(OtherModel(), /*dry_run=*/true, /*hash_weights=*/true).ok());

  EXPECT_EQ(cluster.Deployment().activity,
            "serving epoch 1; a dry run is reading /models/b (not begun)");
  EXPECT_TRUE(cluster.Deployment().reading->dry_run);
}

}  // namespace
}  // namespace switchyard
