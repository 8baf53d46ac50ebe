// Applies whose checkpoints take their time: what is answered at once, what goes on, and what ends
// it.
#include "coordinator/applies.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/model_facts.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeFacts;
using testing::MakeSpec;

const auto kBusy = FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady);

// Checkpoints are checked at once; their weights are read when a test says so.
class AppliesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster.models["/models/b"] = MakeFacts({.weights = 2});
    cluster.Join("w0");
    cluster.Join("w1");
    cluster.hold_loads = true;
  }
  static DeploymentSpec Spec(const std::string& name, const std::string& checkpoint = "/models/b") {
    DeploymentSpec spec = MakeSpec(2);
    spec.name = name;
    spec.checkpoint = checkpoint;
    return spec;
  }
  // Deployment "demo" serves epoch 1 of /models/m.
  void Serve() {
    cluster.hold_loads = false;
    SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));
    ASSERT_EQ(cluster.Serving(), 1U);
    cluster.hold_loads = true;
  }
  // Applies, and lets the time pass after which it is answered.
  void ApplyAnswered(const DeploymentSpec& spec) {
    EXPECT_FALSE(cluster.Apply(spec).ok()) << "not answered yet";
    cluster.Advance(kApplyAnswer);
    ASSERT_TRUE(cluster.answer());
    SY_ASSERT_OK(cluster.answer()->status());
  }
  // The weights of the last load are read.
  void Load(const absl::StatusOr<ModelFacts>& read) {
    cluster.Step(ModelLoaded{cluster.held_loads.back().id, read});
  }
  std::map<std::string, std::string> StoredApplies() { return cluster.store.Load()->applies; }
  std::string Names() {
    std::string names;
    for (const DeploymentView& one : cluster.View().deployments) {
      absl::StrAppend(&names, one.spec.name, " ");
    }
    return names;
  }

  const ModelFacts facts = MakeFacts({.weights = 2});
  const absl::Status damaged =
      MakeError(absl::StatusCode::kDataLoss, Reason::kCheckpoint, "tensor 'x' ends early");
  Cluster cluster;
};

TEST_F(AppliesTest, WhatHeadersShowToBeWrongIsAnsweredAtOnce) {
  EXPECT_THAT(cluster.Apply(Spec("demo", "/models/none")),
              FailsWith(absl::StatusCode::kNotFound, Reason::kCheckpoint));
  DeploymentSpec layers = Spec("demo");
  layers.layers.push_back({LayerId{77}, {}, DtypeChoice::kBf16});
  EXPECT_THAT(cluster.Apply(layers),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));

  EXPECT_THAT(cluster.held_loads, IsEmpty());
  EXPECT_THAT(StoredApplies(), IsEmpty());
  EXPECT_EQ(Names(), "");
}

TEST_F(AppliesTest, IsAnsweredBeforeItsWeightsAreRead) {
  EXPECT_FALSE(cluster.Apply(Spec("demo")).ok());
  cluster.Advance(kApplyAnswer - milliseconds(10));
  EXPECT_FALSE(cluster.answer());
  cluster.Advance(milliseconds(10));

  ASSERT_TRUE(cluster.answer());
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView view, *cluster.answer());
  EXPECT_EQ(view.spec.name, "demo");
  EXPECT_EQ(view.state, DeploymentState::kReading);
  EXPECT_TRUE(view.reading);
  EXPECT_FALSE(view.current);
  EXPECT_THAT(cluster.OpenDecode(), kBusy);
  EXPECT_EQ(StoredApplies().size(), 1U);

  Load(facts);
  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_THAT(StoredApplies(), IsEmpty());
  SY_EXPECT_OK(cluster.OpenDecode());
}

TEST_F(AppliesTest, IsAnsweredOnlyOnceARestartWouldGoOnWithIt) {
  cluster.hold_writes = true;
  EXPECT_FALSE(cluster.Apply(Spec("demo")).ok());
  cluster.Advance(seconds(1));
  EXPECT_FALSE(cluster.answer());

  cluster.ReleaseWrites();

  EXPECT_TRUE(cluster.answer());
}

TEST_F(AppliesTest, WithoutAStoreTheAnswerWaitsForTheEnd) {
  cluster.write_status = MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk");
  EXPECT_FALSE(cluster.Apply(Spec("demo")).ok());
  cluster.Advance(seconds(1));
  EXPECT_FALSE(cluster.answer());

  Load(facts);

  ASSERT_TRUE(cluster.answer());
  EXPECT_THAT(*cluster.answer(), FailsWith(absl::StatusCode::kUnavailable, Reason::kStoreWrite));
  EXPECT_EQ(Names(), "");
}

TEST_F(AppliesTest, TheAnswerForADeploymentThatServesShowsWhatComes) {
  Serve();
  DeploymentSpec spec = Spec("demo");
  spec.max_tokens_per_step = 64;
  ApplyAnswered(spec);

  const DeploymentView& view = **cluster.answer();
  EXPECT_EQ(view.state, DeploymentState::kServing);
  EXPECT_EQ(view.spec.max_tokens_per_step, 64);
  EXPECT_FALSE(view.current);
  EXPECT_THAT(view.activity, HasSubstr("serving epoch 1; an apply is reading /models/b"));
  EXPECT_EQ(cluster.Deployment().spec.checkpoint, "/models/m") << "it serves on";

  Load(facts);
  EXPECT_EQ(cluster.Deployment().spec.checkpoint, "/models/b");
  EXPECT_EQ(cluster.Serving(), 2U);
}

TEST_F(AppliesTest, TheAnswerSaysWhatCanNeverBeServed) {
  for (LayerStorage& layer : cluster.models["/models/b"].storage) {
    layer.scheme = QuantScheme::kAwqInt4;
  }
  DeploymentSpec spec = Spec("demo");
  spec.dispatcher_output_dtype = DtypeChoice::kFp8;
  EXPECT_FALSE(cluster.Apply(spec).ok());
  cluster.Advance(kApplyAnswer);

  ASSERT_TRUE(cluster.answer());
  SY_ASSERT_OK(cluster.answer()->status());
  EXPECT_EQ(ReasonOf((*cluster.answer())->problem), Reason::kBadConfig);
}

TEST_F(AppliesTest, AFirstApplyThatFailsLaterIsRefusedAndSaysWhy) {
  ApplyAnswered(Spec("demo"));
  Load(damaged);

  const DeploymentView view = cluster.Deployment();
  EXPECT_EQ(view.state, DeploymentState::kRefused);
  EXPECT_TRUE(view.refused);
  EXPECT_THAT(std::string(view.problem.message()), HasSubstr("tensor 'x' ends early"));
  EXPECT_EQ(view.apply_failure, view.problem);
  EXPECT_EQ(cluster.Journal().back().reason, "ApplyFailed");
  EXPECT_THAT(cluster.Journal().back().message, HasSubstr("tensor 'x' ends early"));
  EXPECT_THAT(StoredApplies(), IsEmpty());

  ApplyAnswered(Spec("demo"));
  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kReading);
  Load(facts);
  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kServing);
}

TEST_F(AppliesTest, ALaterApplyThatFailsLeavesWhatServes) {
  Serve();
  ApplyAnswered(Spec("demo"));
  Load(damaged);

  const DeploymentView view = cluster.Deployment();
  EXPECT_EQ(view.state, DeploymentState::kServing);
  EXPECT_TRUE(view.current);
  SY_EXPECT_OK(view.problem);
  EXPECT_THAT(std::string(view.apply_failure.message()), HasSubstr("tensor 'x' ends early"));
  EXPECT_EQ(view.activity, "serving epoch 1; the last apply failed");
  SY_EXPECT_OK(cluster.OpenDecode());

  // The next one that is right makes it good; one that is wrong from the start does not.
  EXPECT_FALSE(cluster.Apply(Spec("demo", "/models/none")).ok());
  EXPECT_FALSE(cluster.Deployment().apply_failure.ok());
  ApplyAnswered(Spec("demo"));
  SY_EXPECT_OK(cluster.Deployment().apply_failure);
}

TEST_F(AppliesTest, FailedOnesAreBounded) {
  CoordinatorOptions options;
  options.max_deployments = 2;
  cluster.SetOptions(options);
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  for (const char* name : {"a", "b", "c"}) {
    ApplyAnswered(Spec(name));
    cluster.wall_time += seconds(1);
    Load(damaged);
  }
  EXPECT_EQ(Names(), "b c ");
}

TEST_F(AppliesTest, ARestartGoesOnWithIt) {
  cluster.StopCoordinator();
  CoordinatorOptions options;
  options.dispatch.dispatcher_output_dtype = DtypeChoice::kBf16;
  cluster.SetOptions(options);
  cluster.StartCoordinator();
  ApplyAnswered(Spec("demo"));
  cluster.StopCoordinator();
  cluster.SetOptions({});
  cluster.StartCoordinator();

  cluster.Step(Tick{});
  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kReading);
  ASSERT_EQ(cluster.held_loads.size(), 2U);
  cluster.Join("w0");
  cluster.Join("w1");
  Load(facts);

  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kServing);
  EXPECT_EQ(cluster.Deployment().spec.coordinator_defaults.dispatcher_output_dtype,
            DtypeChoice::kBf16)
      << "those of the time when it was applied";
  EXPECT_THAT(StoredApplies(), IsEmpty());
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  cluster.Step(Tick{});
  EXPECT_EQ(cluster.held_loads.size(), 2U) << "nothing is left to do";
}

TEST_F(AppliesTest, ARestartThatFindsNoCheckpointAnyMoreSaysSo) {
  ApplyAnswered(Spec("demo"));
  cluster.StopCoordinator();
  cluster.models.erase("/models/b");
  cluster.StartCoordinator();
  cluster.Step(Tick{});

  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kRefused);
  EXPECT_THAT(StoredApplies(), IsEmpty());
}

TEST_F(AppliesTest, ANewerOneTakesThePlaceOfOneThatWasAnswered) {
  ApplyAnswered(Spec("demo"));
  const RequestId older = cluster.held_loads.back().id;
  SY_ASSERT_OK(cluster.Apply(Spec("demo", "/models/m")));

  ASSERT_EQ(cluster.canceled_loads.size(), 1U);
  EXPECT_EQ(cluster.canceled_loads[0], older);
  cluster.Step(ModelLoaded{older, absl::CancelledError("")});
  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kReading);
  Load(MakeFacts());
  EXPECT_EQ(cluster.Deployment().spec.checkpoint, "/models/m");
  EXPECT_THAT(StoredApplies(), IsEmpty());
}

// The older request must not come back with a restart.
TEST_F(AppliesTest, ANewerOneThatFailsLeavesNothingOfTheOlder) {
  ApplyAnswered(Spec("demo"));
  SY_ASSERT_OK(cluster.Apply(Spec("demo", "/models/m"))) << "stored in the place of the older";
  Load(damaged);

  EXPECT_THAT(StoredApplies(), IsEmpty());
  const std::size_t loads = cluster.held_loads.size();
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  cluster.Step(Tick{});
  EXPECT_EQ(cluster.held_loads.size(), loads);
}

TEST_F(AppliesTest, TheSameAgainIsNotReadAnew) {
  ApplyAnswered(Spec("demo"));
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView view, cluster.Apply(Spec("demo")));

  EXPECT_EQ(view.state, DeploymentState::kReading);
  EXPECT_EQ(cluster.held_loads.size(), 1U);
  EXPECT_THAT(cluster.canceled_loads, IsEmpty());
}

TEST_F(AppliesTest, LogsEveryTenSecondsHowFarItIs) {
  ApplyAnswered(Spec("demo"));
  cluster.reports.clear();
  for (int second = 0; second < 25; ++second) {
    cluster.Step(ModelProgress{cluster.held_loads.back().id, second, 100});
    cluster.now += seconds(1);
  }
  ASSERT_EQ(cluster.reports.size(), 3U);  // after 1, 11 and 21 s
  EXPECT_THAT(cluster.reports[1].text,
              HasSubstr("deployment demo: reading /models/b (11 of 100 B"));
}

TEST_F(AppliesTest, OneThatIsWrongEndsNoOtherOne) {
  ApplyAnswered(Spec("demo"));
  EXPECT_FALSE(cluster.Apply(Spec("demo", "/models/none")).ok());

  EXPECT_THAT(cluster.canceled_loads, IsEmpty());
  Load(facts);
  EXPECT_EQ(cluster.Serving(), 1U);
}

TEST_F(AppliesTest, OneThatIsNotAnsweredKeepsItsPlace) {
  EXPECT_FALSE(cluster.Apply(Spec("demo")).ok());
  EXPECT_THAT(cluster.Apply(Spec("demo", "/models/m")), kBusy);
  EXPECT_THAT(cluster.Delete(), kBusy);
}

TEST_F(AppliesTest, ARollbackEndsAnApplyThatWasAnswered) {
  Serve();
  cluster.hold_loads = false;
  DeploymentSpec second = MakeSpec(2);
  second.max_tokens_per_step = 64;
  SY_ASSERT_OK(cluster.Apply(second));
  cluster.hold_loads = true;
  ApplyAnswered(Spec("demo"));

  SY_ASSERT_OK(cluster.Rollback());

  EXPECT_EQ(cluster.canceled_loads.size(), 1U);
  EXPECT_FALSE(cluster.Deployment().reading);
  EXPECT_THAT(StoredApplies(), IsEmpty());
}

TEST_F(AppliesTest, ADeletionEndsAFirstApply) {
  ApplyAnswered(Spec("demo"));
  SY_ASSERT_OK(cluster.Delete());

  EXPECT_EQ(cluster.canceled_loads.size(), 1U);
  EXPECT_EQ(Names(), "");
  EXPECT_THAT(StoredApplies(), IsEmpty());
  Load(facts);  // It was too late to stop.
  EXPECT_EQ(Names(), "");
  EXPECT_THAT(cluster.Delete(), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

TEST_F(AppliesTest, ADeletionForgetsOneThatFailed) {
  ApplyAnswered(Spec("demo"));
  Load(damaged);
  SY_ASSERT_OK(cluster.Delete());
  EXPECT_EQ(Names(), "");
}

TEST_F(AppliesTest, ADeletionOfADeploymentEndsItsApplyToo) {
  Serve();
  ApplyAnswered(Spec("demo"));
  SY_ASSERT_OK(cluster.Delete());

  EXPECT_EQ(cluster.canceled_loads.size(), 1U);
  Load(facts);
  cluster.Advance(seconds(1));
  EXPECT_EQ(Names(), "");
}

TEST_F(AppliesTest, ADryRunNeedsTheHeadersOnlyUnlessItHashes) {
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView quick, cluster.Apply(Spec("demo"), true));
  EXPECT_THAT(quick.activity, HasSubstr("a plan with 2 workers is possible"));
  EXPECT_EQ(quick.manifest, Sha256Digest{});
  EXPECT_THAT(cluster.held_loads, IsEmpty());

  EXPECT_FALSE(cluster.Apply(Spec("demo"), true, /*hash_weights=*/true).ok());
  cluster.Advance(seconds(1));
  EXPECT_FALSE(cluster.answer()) << "it is not an answer before";
  // Nobody has to wait for it.
  ApplyAnswered(Spec("demo"));
  cluster.Step(ModelLoaded{cluster.held_loads[1].id, facts});
  EXPECT_EQ(cluster.Serving(), 1U);
  cluster.Step(ModelLoaded{cluster.held_loads[0].id, facts});
  EXPECT_EQ((*cluster.answer())->manifest, facts.manifest.Hash());
}

TEST_F(AppliesTest, DryRunsAreBounded) {
  CoordinatorOptions options;
  options.max_deployments = 2;
  cluster.SetOptions(options);
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(cluster.Apply(Spec("demo"), true, true).ok());
  EXPECT_THAT(cluster.Apply(Spec("demo"), true, true),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
}

}  // namespace
}  // namespace switchyard
