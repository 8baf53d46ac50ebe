// From an empty coordinator to the first epoch that serves.
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::MakeSpec;

const auto kNotReady = FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady);

TEST(FirstEpochTest, WaitsForMinWorkersThenServesOnAllOfThem) {
  Cluster cluster;
  SY_ASSERT_OK(cluster.Apply(MakeSpec(3)));
  cluster.Join("w1");
  cluster.Join("w0");
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.Serving(), 0U);
  EXPECT_THAT(cluster.OpenDecode(), kNotReady);

  cluster.Join("w2");

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  SY_EXPECT_OK(cluster.OpenDecode());
}

TEST(FirstEpochTest, WorkersMayComeBeforeTheDeployment) {
  Cluster cluster;
  cluster.Join("w0");
  cluster.Join("w1");

  SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));

  EXPECT_EQ(cluster.Serving(), 1U);
}

TEST(FirstEpochTest, GoesWithoutTheMissingAfterJoinTimeoutWhenTheModelFits) {
  Cluster cluster;
  SY_ASSERT_OK(cluster.Apply(MakeSpec(4)));
  cluster.Join("w0");
  cluster.Advance(seconds(19));
  EXPECT_EQ(cluster.Serving(), 0U);

  cluster.Advance(seconds(2));

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.ServingWorkers(), "w0");
}

TEST(FirstEpochTest, SaysWhoIsThereAfterJoinTimeoutWhenTheModelDoesNotFit) {
  Cluster cluster;  // The model takes 2 layers x 16 experts x 192 bytes = 6144 bytes.
  SY_ASSERT_OK(cluster.Apply(MakeSpec(3)));
  cluster.Join("w0", 3000);
  cluster.Join("w1", 3000);
  cluster.Advance(seconds(21));

  const auto session = cluster.OpenDecode();

  ASSERT_THAT(session, kNotReady);
  for (const char* part :
       {"2 workers are connected (w0, w1)", "3 are requested", "has room for 3000"}) {
    EXPECT_NE(session.status().message().find(part), absl::string_view::npos) << session.status();
  }
  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kPending);
  cluster.Join("w2", 3000);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
}

// Before any worker is there, and so that nothing of it is stored.
TEST(FirstEpochTest, RefusesLayersThatTheModelDoesNotHaveWhenTheyAreApplied) {
  Cluster cluster;
  DeploymentSpec spec = MakeSpec(1);
  spec.layers = {{LayerId{1}, {}, DtypeChoice::kBf16}, {LayerId{2}, {}, DtypeChoice::kBf16}};

  for (const bool dry_run : {true, false}) {
    const absl::Status refused = cluster.Apply(spec, dry_run).status();

    ASSERT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
    EXPECT_EQ(MetadataOf(refused).at("layer"), "2");
    EXPECT_NE(refused.message().find("deployment demo"), absl::string_view::npos) << refused;
  }
  EXPECT_TRUE(cluster.written.empty());
  spec.layers.pop_back();
  SY_EXPECT_OK(cluster.Apply(spec));
}

TEST(FirstEpochTest, ADryRunSaysWhenMinWorkersIsNotReachedAndShowsThePlan) {
  Cluster cluster;
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView nobody, cluster.Apply(MakeSpec(2), true));
  EXPECT_EQ(nobody.proposed, nullptr);
  EXPECT_EQ(nobody.activity,
            "checked; the available workers are not sufficient; min_workers is not reached: 0 of 2 "
            "are connected (none), and a first plan waits for more up to join_timeout");
  cluster.Join("w0");

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView one, cluster.Apply(MakeSpec(2), true));
  cluster.Join("w1");
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView both, cluster.Apply(MakeSpec(2), true));

  EXPECT_EQ(
      one.activity,
      "checked; a plan with 1 worker is possible (the first plan: all 32 experts are loaded); "
      "min_workers is not reached: 1 of 2 are "
      "connected (w0), and a first plan waits for more up to join_timeout");
  EXPECT_EQ(
      both.activity,
      "checked; a plan with 2 workers is possible (the first plan: all 32 experts are loaded)");
  ASSERT_NE(both.proposed, nullptr);
  EXPECT_EQ(both.proposed->configs.size(), both.layers.size() * both.spec.phases.size());
  EXPECT_TRUE(cluster.written.empty());
}

TEST(FirstEpochTest, ADryRunOfARunningDeploymentSaysWhatWouldMove) {
  Cluster cluster;
  cluster.Join("w0");
  SY_ASSERT_OK(cluster.Apply(MakeSpec(1)));
  cluster.Join("w1");
  DeploymentSpec spec = MakeSpec(2);

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView view, cluster.Apply(spec, true));

  EXPECT_EQ(view.activity,
            "checked; a plan with 2 workers is possible (16 of 32 experts move; w1 joins)");
}

TEST(FirstEpochTest, WorkersThatDoNotSuitDoNotCountTowardsMinWorkers) {
  Cluster cluster;
  cluster.Join("w0");
  FakeWorker& odd = cluster.Join("w1");
  odd.capabilities.schemes.clear();
  cluster.BreakStream("w1");
  cluster.Register(odd);

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView view, cluster.Apply(MakeSpec(2)));

  EXPECT_EQ(
      view.activity.find("waiting for workers: 1 of 2 are connected (w0); w1 cannot be used: "), 0U)
      << view.activity;
}

// R2: the coordinator's defaults are stamped on what is applied and stored with it; whoever applies
// it cannot set them, and a coordinator that comes back without them plans as before.
TEST(FirstEpochTest, AppliedDeploymentsKeepTheDefaultsOfTheirCoordinator) {
  CoordinatorOptions options;
  options.dispatch.bf16_dispatch_flag = "the coordinator's environment";
  Cluster cluster(options);
  cluster.Join("w0");
  DeploymentSpec asked = MakeSpec(1);
  asked.coordinator_defaults.dispatcher_output_dtype = DtypeChoice::kNvfp4;

  SY_ASSERT_OK(cluster.Apply(asked));

  EXPECT_EQ(cluster.Deployment().spec.coordinator_defaults, options.dispatch);
  const std::vector<std::string> trail = cluster.Deployment().serving->plan.configs[0].trail;
  EXPECT_NE(trail[1].find("rule 1 (bf16_flag)"), std::string::npos) << trail[1];
  cluster.StopCoordinator();
  cluster.SetOptions({});
  cluster.StartCoordinator();
  EXPECT_EQ(cluster.Deployment().spec.coordinator_defaults, options.dispatch);
  EXPECT_EQ(cluster.Deployment().serving->plan.configs[0].trail, trail);
  SY_ASSERT_OK(cluster.Apply(asked));
  EXPECT_EQ(cluster.Deployment().spec.coordinator_defaults, DispatchDefaults{});
}

// R17: what plans warn of carries the name under which a process says it once.
TEST(FirstEpochTest, WarningsOfPlansHaveANameToBeSaidOnceUnder) {
  CoordinatorOptions options;
  options.dispatch.bf16_dispatch_flag = "the coordinator's environment";
  Cluster cluster(options);
  cluster.Join("w0");

  SY_ASSERT_OK(cluster.Apply(MakeSpec(1)));

  int named = 0;
  for (const Report& report : cluster.reports) {
    if (report.once.empty()) continue;
    ++named;
    EXPECT_EQ(report.once, "deprecated_bf16_flag");
    EXPECT_EQ(report.level, LogLevel::kWarn);
    EXPECT_NE(report.text.find("--dispatcher-output-dtype bf16"), std::string::npos);
  }
  EXPECT_GE(named, 1);
}

TEST(FirstEpochTest, ApplyAndItsDryRunBringTheWarningsOfTheProposal) {
  CoordinatorOptions options;
  options.dispatch.bf16_dispatch_flag = "the coordinator's environment";
  Cluster cluster(options);
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView nobody, cluster.Apply(MakeSpec(1), true));
  EXPECT_TRUE(nobody.warnings.empty()) << "no plan, nothing to be told about it";
  cluster.Join("w0");

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView tried, cluster.Apply(MakeSpec(1), true));
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView applied, cluster.Apply(MakeSpec(1)));

  for (const DeploymentView& view : {tried, applied}) {
    ASSERT_EQ(view.warnings.size(), 1U);
    EXPECT_EQ(view.warnings[0].id, WarningId::kDeprecatedBf16Flag);
  }
}

TEST(FirstEpochTest, TellsEachWorkerItsExpertsAndTheirHashes) {
  Cluster cluster;
  cluster.Join("w0");
  cluster.Join("w1");
  SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));

  const auto prepares = cluster.worker("w1").Got<Prepare>();

  ASSERT_EQ(prepares.size(), 1U);
  const Prepare& prepare = prepares.front();
  EXPECT_EQ(prepare.hash, HashOf(prepare.plan));
  EXPECT_EQ(prepare.checkpoint, "/models/m");
  EXPECT_EQ(prepare.plan.manifest, testing::MakeFacts().manifest.Hash());
  EXPECT_EQ(prepare.tensors.size(), 2U * 8U * 3U) << "2 layers, 8 experts, 3 projections";
  const ModelFacts facts = testing::MakeFacts();
  for (const TensorHash& tensor : prepare.tensors) {
    EXPECT_GE(tensor.expert.value, 8);
    const TensorHash* row = facts.manifest.Find(tensor.layer, tensor.expert, tensor.projection);
    ASSERT_NE(row, nullptr);
    EXPECT_EQ(row->sha256, tensor.sha256);
  }
  EXPECT_EQ(cluster.worker("w1").Got<Commit>().front().hash, prepare.hash);
}

TEST(FirstEpochTest, LeavesWorkersOutThatDoNotSuit) {
  Cluster cluster;
  cluster.Join("w0");
  cluster.Join("w1");
  FakeWorker& odd = cluster.Join("w2");
  odd.capabilities.wire_dtypes = {DispatchDtype::kFp8};
  cluster.BreakStream("w2");
  cluster.Register(odd);

  SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1");
  ASSERT_EQ(cluster.Deployment().left_out.size(), 1U);
  EXPECT_NE(cluster.Deployment().left_out[0].find("w2: does not take bf16"), std::string::npos);
}

TEST(FirstEpochTest, UsesAtMostOneWorkerForEachExpertOfEachLayer) {
  Cluster cluster;
  cluster.models["/models/m"] = testing::MakeFacts({.experts = 2, .top_k = 1});
  for (const char* id : {"w0", "w1", "w2", "w3", "w4"}) cluster.Join(id);

  SY_ASSERT_OK(cluster.Apply(MakeSpec(3)));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2 w3");
  cluster.Advance(seconds(5));
  EXPECT_EQ(cluster.Serving(), 1U) << "a spare worker is no reason for another epoch";
}

TEST(FirstEpochTest, ASecondDeploymentCountsTheMemoryOfTheFirst) {
  Cluster cluster;
  cluster.models["/models/n"] = testing::MakeFacts({.weights = 2});
  cluster.Join("w0", 7000);
  cluster.Join("w1", 7000);
  SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));  // 3072 bytes on each
  DeploymentSpec second = MakeSpec(2);
  second.name = "other";
  second.checkpoint = "/models/n";
  SY_ASSERT_OK(cluster.Apply(second));  // 3072 more
  EXPECT_EQ(cluster.Serving("other"), 1U);

  DeploymentSpec third = second;
  third.name = "third";
  SY_ASSERT_OK(cluster.Apply(third));
  cluster.Advance(seconds(30));

  EXPECT_EQ(cluster.Serving("third"), 0U);
  EXPECT_EQ(cluster.Serving("demo"), 1U);
  EXPECT_EQ(cluster.Serving("other"), 1U);
}

}  // namespace
}  // namespace switchyard
