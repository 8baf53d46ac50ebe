// Revisions of a deployment: the list by itself, and a coordinator that keeps one.
#include "coordinator/history/revisions.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MakeFacts;
using testing::MakeSpec;

const auto kNoRevision = FailsWith(absl::StatusCode::kNotFound, Reason::kBadRequest);
const auto kBusy = FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady);

// Of a model that no worker can serve with rows of FP8.
ModelFacts RefusedFacts() {
  ModelFacts facts = MakeFacts({.weights = 9});
  for (LayerStorage& layer : facts.storage) {
    layer.scheme = QuantScheme::kAwqInt4;
    layer.quant_config.emplace();
  }
  return facts;
}

Revision Of(std::uint64_t number, std::uint64_t served = 0) {
  return {.number = number,
          .spec = MakeSpec(),
          .facts = std::make_shared<const ModelFacts>(MakeFacts()),
          .served = Epoch{served}};
}

TEST(RevisionsTest, AnAdditionLeavesTheNewestAndTheOneThatServes) {
  Revisions revisions({Of(1), Of(2, 5), Of(3), Of(4)});

  EXPECT_THAT(revisions.Surplus(3, 2), ElementsAre(1));
  EXPECT_THAT(revisions.Surplus(3, 0), ElementsAre(1, 2));
  EXPECT_THAT(revisions.Surplus(1, 2), ElementsAre(1, 3, 4));
  EXPECT_THAT(revisions.Surplus(5, 2), IsEmpty());
  EXPECT_THAT(revisions.Surplus(100, 2), IsEmpty());

  const auto before = revisions.list();
  revisions.Add(Of(5), {1, 3});

  EXPECT_EQ(revisions.Find(1), nullptr);
  EXPECT_EQ(revisions.Find(3), nullptr);
  ASSERT_NE(revisions.Find(5), nullptr);
  EXPECT_EQ(revisions.list()->back().number, 5U);
  EXPECT_EQ(before->size(), 4U) << "a reader's list stays as it was";
}

TEST(RevisionsTest, GoesBackToTheNewestOneBeforeThatHasServed) {
  Revision other = Of(3, 4);
  other.spec.max_tokens_per_step = 64;
  // Revision 4 never served, and 5 is the same as 6.
  const Revisions revisions({Of(2, 1), other, Of(4), Of(5, 6), Of(6, 7)});

  SY_ASSERT_OK_AND_ASSIGN(const Revision* before, revisions.RollbackTarget("d", 6, 0));
  EXPECT_EQ(before->number, 3U);
  SY_ASSERT_OK_AND_ASSIGN(const Revision* named, revisions.RollbackTarget("d", 5, 4));
  EXPECT_EQ(named->number, 4U) << "also one that never served";
  EXPECT_THAT(revisions.RollbackTarget("d", 2, 0), kNoRevision);
  EXPECT_THAT(revisions.RollbackTarget("d", 5, 1), kNoRevision);
  EXPECT_THAT(std::string(revisions.RollbackTarget("d", 5, 1).status().message()),
              HasSubstr("these are kept: 2, 3, 4, 5, 6"));
}

TEST(RevisionsTest, TheStoredFormHasAllOfIt) {
  Revision revision = Of(7, 9);
  revision.applied = WallTime(milliseconds(1'700'000'000'123));
  revision.rollback_to = 3;
  revision.refusal = "layer 1 cannot";
  revision.spec.dispatcher_output_dtype = DtypeChoice::kFp8;
  const NewRevision stored = ToStored(revision);
  const Sha256Digest hash = Sha256(stored.checkpoint);
  ReadCheckpoints read;

  SY_ASSERT_OK_AND_ASSIGN(const Revision parsed,
                          FromStored({stored.number, revision.served, stored.revision, hash},
                                     {{hash, stored.checkpoint}}, &read));

  EXPECT_EQ(parsed.number, 7U);
  EXPECT_EQ(parsed.served, Epoch{9});
  EXPECT_EQ(parsed.applied, revision.applied);
  EXPECT_EQ(parsed.rollback_to, 3U);
  EXPECT_EQ(parsed.refusal, revision.refusal);
  EXPECT_EQ(parsed.spec, revision.spec);
  EXPECT_EQ(*parsed.facts, *revision.facts);
  EXPECT_EQ(read.at(hash), parsed.facts) << "for the next revision of it";
}

TEST(RevisionsTest, RefusesDamage) {
  const NewRevision stored = ToStored(Of(1));
  const Sha256Digest hash = Sha256(stored.checkpoint);
  const auto damaged = FailsWith(absl::StatusCode::kDataLoss, Reason::kStoreWrite);
  const auto read = [&](const std::string& revision,
                        const std::map<Sha256Digest, std::string>& checkpoints) {
    ReadCheckpoints none;
    return FromStored({1, {}, revision, hash}, checkpoints, &none).status();
  };
  SY_ASSERT_OK(read(stored.revision, {{hash, stored.checkpoint}}));

  EXPECT_THAT(read(stored.revision, {}), damaged);
  EXPECT_THAT(read(stored.revision, {{hash, stored.checkpoint + "x"}}), damaged);
  EXPECT_THAT(read(stored.revision + "x", {{hash, stored.checkpoint}}), damaged);
  for (std::size_t size = 0; size < stored.revision.size(); ++size) {
    EXPECT_THAT(read(stored.revision.substr(0, size), {{hash, stored.checkpoint}}), damaged);
  }
}

// Revision 1 serves epoch 1 on w0 and w1.
class RollbackTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cluster.models["/models/awq"] = RefusedFacts();
    for (const char* id : {"w0", "w1"}) cluster.Join(id);
    SY_ASSERT_OK(cluster.Apply(Tokens(128)));
    ASSERT_EQ(cluster.Serving(), 1U);
  }
  // Each number makes another plan, by workers that can do nothing else.
  static DeploymentSpec Tokens(std::int32_t most) {
    DeploymentSpec spec = MakeSpec(2);
    spec.max_tokens_per_step = most;
    return spec;
  }
  // No worker can serve it.
  static DeploymentSpec Refused(std::int32_t most = 128) {
    DeploymentSpec spec = Tokens(most);
    spec.checkpoint = "/models/awq";
    spec.dispatcher_output_dtype = DtypeChoice::kFp8;
    return spec;
  }
  void Bounce() {
    cluster.StopCoordinator();
    cluster.StartCoordinator();
    for (const char* id : {"w0", "w1"}) cluster.Register(cluster.worker(id));
    cluster.Advance(seconds(13));  // until its sources have dialed
  }
  // "1@1 2@3": numbers and the epochs that they served last.
  std::string Kept() {
    std::string all;
    for (const Revision& one : *cluster.Deployment().revisions) {
      absl::StrAppend(&all, all.empty() ? "" : " ", one.number, "@", one.served.value);
    }
    return all;
  }

  Cluster cluster;
};

TEST_F(RollbackTest, OnlyAChangeMakesARevision) {
  SY_ASSERT_OK(cluster.Apply(Tokens(128)));
  EXPECT_EQ(Kept(), "1@1");
  EXPECT_EQ(cluster.Deployment().revision, 1U);

  SY_ASSERT_OK(cluster.Apply(Tokens(256)));
  SY_ASSERT_OK(cluster.Apply(Tokens(256)));

  EXPECT_EQ(Kept(), "1@1 2@2");
  EXPECT_EQ(cluster.Deployment().served_revision, 2U);
  EXPECT_EQ(cluster.Deployment().revisions->back().applied, cluster.wall_time);
  EXPECT_EQ(cluster.Deployment().revisions->front().facts,
            cluster.Deployment().revisions->back().facts)
      << "one checkpoint";
}

TEST_F(RollbackTest, ADryRunMakesNone) {
  SY_ASSERT_OK(cluster.Apply(Tokens(256), /*dry_run=*/true));

  EXPECT_EQ(Kept(), "1@1");
}

// The same plan: no epoch is made, and still the new revision is the one that serves.
TEST_F(RollbackTest, ARevisionMayServeUnderTheEpochOfTheOneBefore) {
  DeploymentSpec spec = Tokens(128);
  spec.former_model_kept = seconds(5);

  SY_ASSERT_OK(cluster.Apply(spec));

  EXPECT_EQ(Kept(), "1@1 2@1");
  EXPECT_TRUE(cluster.Deployment().current);
  Bounce();
  EXPECT_EQ(cluster.Deployment().served_revision, 2U);
}

TEST_F(RollbackTest, MakesAnotherRevisionOfTheFormerSpecWithoutReadingACheckpoint) {
  SY_ASSERT_OK(cluster.Apply(Tokens(256)));
  cluster.models.clear();

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView answer, cluster.Rollback());

  EXPECT_EQ(answer.revision, 3U);
  EXPECT_EQ(answer.spec.max_tokens_per_step, 128);
  EXPECT_EQ(Kept(), "1@1 2@2 3@3");
  EXPECT_EQ(cluster.Deployment().revisions->back().rollback_to, 1U);
  EXPECT_TRUE(cluster.Deployment().current);
  EXPECT_EQ(cluster.Deployment().served->checkpoint, "/models/m");
}

TEST_F(RollbackTest, ToANumber) {
  SY_ASSERT_OK(cluster.Apply(Tokens(256)));
  SY_ASSERT_OK(cluster.Apply(Tokens(512)));

  SY_ASSERT_OK(cluster.Rollback(1));
  EXPECT_EQ(cluster.Deployment().spec.max_tokens_per_step, 128);
  SY_ASSERT_OK(cluster.Rollback());
  EXPECT_EQ(cluster.Deployment().spec.max_tokens_per_step, 512) << "the one before, as ever";

  EXPECT_EQ(Kept(), "1@1 2@2 3@3 4@4 5@5");
}

TEST_F(RollbackTest, ToWhatIsAppliedChangesNothing) {
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView answer, cluster.Rollback(1));

  EXPECT_EQ(answer.revision, 1U);
  EXPECT_EQ(Kept(), "1@1");
}

TEST_F(RollbackTest, ToAnotherModelServesTheWeightsOfThatTime) {
  cluster.models["/models/b"] = MakeFacts({.weights = 2});
  DeploymentSpec other = MakeSpec(2);
  other.checkpoint = "/models/b";
  SY_ASSERT_OK(cluster.Apply(other));
  ASSERT_EQ(cluster.Deployment().served->manifest, MakeFacts({.weights = 2}).manifest.Hash());
  // Somebody has overwritten the folder: workers will compare with the manifest of the revision.
  cluster.models["/models/m"] = MakeFacts({.weights = 3});

  SY_ASSERT_OK(cluster.Rollback());

  EXPECT_EQ(cluster.Deployment().served->manifest, MakeFacts().manifest.Hash());
  EXPECT_EQ(cluster.Deployment().served->checkpoint, "/models/m");
  EXPECT_NE(cluster.Deployment().revisions->front().facts,
            (*cluster.Deployment().revisions)[1].facts);
}

TEST_F(RollbackTest, IsRefusedWhereThereIsNothingToGoBackTo) {
  EXPECT_THAT(cluster.Rollback(), kNoRevision);
  EXPECT_THAT(cluster.Rollback(7), kNoRevision);
  EXPECT_THAT(cluster.Rollback(1, "other"),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
  SY_ASSERT_OK(cluster.OpenDecode());
  SY_ASSERT_OK(cluster.Delete());
  EXPECT_THAT(cluster.Rollback(1), kBusy);
}

TEST_F(RollbackTest, WaitsForAnApplyOfTheNameAndTheOtherWayRound) {
  SY_ASSERT_OK(cluster.Apply(Tokens(256)));
  cluster.hold_loads = true;
  EXPECT_FALSE(cluster.Apply(Tokens(512)).ok()) << "not answered";
  EXPECT_THAT(cluster.Rollback(), kBusy);
  cluster.hold_loads = false;
  cluster.Step(ModelLoaded{cluster.held_loads[0].id, MakeFacts()});

  cluster.hold_writes = true;
  EXPECT_FALSE(cluster.Rollback().ok()) << "not answered";
  EXPECT_THAT(cluster.Apply(Tokens(128)), kBusy);
  cluster.ReleaseWrites();
  EXPECT_EQ(cluster.Deployment().spec.max_tokens_per_step, 256);
}

TEST_F(RollbackTest, AWriteThatFailsChangesNothing) {
  SY_ASSERT_OK(cluster.Apply(Tokens(256)));
  cluster.write_status = MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk");
  EXPECT_THAT(cluster.Rollback(), FailsWith(absl::StatusCode::kUnavailable, Reason::kStoreWrite));
  cluster.write_status = absl::OkStatus();
  EXPECT_EQ(Kept(), "1@1 2@2");

  SY_ASSERT_OK(cluster.Rollback());
  EXPECT_EQ(Kept(), "1@1 2@2 3@3");
}

TEST_F(RollbackTest, RevisionsSurviveARestart) {
  SY_ASSERT_OK(cluster.Apply(Tokens(256)));
  SY_ASSERT_OK(cluster.Apply(Refused()));
  cluster.written.clear();

  Bounce();

  EXPECT_EQ(Kept(), "1@1 2@2 3@0");
  EXPECT_EQ(cluster.Deployment().served_revision, 2U);
  EXPECT_NE(cluster.Deployment().revisions->back().refusal, "");
  EXPECT_TRUE(cluster.written.empty()) << "nothing was lacking";
  SY_ASSERT_OK(cluster.Rollback(1));
  EXPECT_EQ(cluster.Deployment().spec.max_tokens_per_step, 128);
}

// The file of a coordinator without revisions: its record becomes the first.
TEST_F(RollbackTest, ARecordOfAnEarlierVersionBecomesRevisionOne) {
  SY_ASSERT_OK_AND_ASSIGN(const StoredState stored, cluster.store.Load());
  std::string bytes = stored.deployments.front().record;
  bytes.resize(bytes.size() - 4 - 8 - 1);  // nor pools
  bytes[0] = 6;
  cluster.StopCoordinator();
  SY_ASSERT_OK(cluster.store.Write(PutDeployment{"demo", bytes, std::nullopt, {1}}));
  SY_ASSERT_OK_AND_ASSIGN(const StoredState old, cluster.store.Load());
  ASSERT_TRUE(old.deployments.front().revisions.empty());
  ASSERT_TRUE(old.checkpoints.empty());
  cluster.StartCoordinator();
  for (const char* id : {"w0", "w1"}) cluster.Register(cluster.worker(id));
  cluster.Advance(seconds(13));

  EXPECT_EQ(cluster.Serving(), 1U) << "the same plan";
  EXPECT_EQ(Kept(), "1@1");
  SY_ASSERT_OK(cluster.Apply(Tokens(256)));
  Bounce();
  SY_ASSERT_OK(cluster.Rollback());
  EXPECT_EQ(Kept(), "1@1 2@2 3@3");
}

TEST_F(RollbackTest, TheHistoryIsBounded) {
  CoordinatorOptions options;
  options.revisions_kept = 3;
  cluster.StopCoordinator();
  cluster.SetOptions(options);
  cluster.StartCoordinator();
  for (const char* id : {"w0", "w1"}) cluster.Register(cluster.worker(id));
  cluster.Advance(seconds(13));

  for (std::int32_t i = 0; i < 20; ++i) SY_ASSERT_OK(cluster.Apply(Tokens(300 + i)));
  EXPECT_EQ(Kept(), "19@19 20@20 21@21");
  for (std::int32_t i = 0; i < 3; ++i) SY_ASSERT_OK(cluster.Apply(Refused(100 + i)));

  EXPECT_EQ(Kept(), "21@21 22@0 23@0 24@0") << "the one that serves stays";
  SY_ASSERT_OK_AND_ASSIGN(const StoredState stored, cluster.store.Load());
  EXPECT_EQ(stored.deployments.front().revisions.size(), 4U);
  EXPECT_EQ(stored.checkpoints.size(), 2U);
  SY_ASSERT_OK(cluster.Delete());
  cluster.Advance(milliseconds(50));
  SY_ASSERT_OK_AND_ASSIGN(const StoredState after, cluster.store.Load());
  EXPECT_TRUE(after.checkpoints.empty());
}

// The revision that serves goes on as if nothing had been applied.
TEST_F(RollbackTest, WhileTheNewestIsRefusedTheOneThatServesIsStillPlannedAnew) {
  SY_ASSERT_OK(cluster.Apply(Refused()));
  DeploymentView view = cluster.Deployment();
  EXPECT_EQ(view.state, DeploymentState::kServing);
  EXPECT_FALSE(view.current);
  EXPECT_THAT(view.problem, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  SY_EXPECT_OK(cluster.OpenDecode());

  cluster.Join("w2");
  cluster.Advance(milliseconds(200));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  cluster.BreakStream("w1");
  cluster.Advance(seconds(13));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");
  view = cluster.Deployment();
  EXPECT_EQ(view.state, DeploymentState::kServing);
  EXPECT_THAT(view.problem, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig))
      << "and it is still said";
  EXPECT_THAT(view.activity, HasSubstr("what was applied last is refused"));
  EXPECT_EQ(Kept(), absl::StrCat("1@", cluster.Serving(), " 2@0"));
  Bounce();
  cluster.Register(cluster.worker("w2"));
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2") << "also after a restart";

  SY_ASSERT_OK(cluster.Rollback(1));
  view = cluster.Deployment();
  EXPECT_TRUE(view.current);
  SY_EXPECT_OK(view.problem);
}

// The same where other workers than those that there are could serve it.
TEST_F(RollbackTest, TheWorkersAtHandMayRefuseTheNewestToo) {
  ModelFacts facts = MakeFacts({.weights = 2});
  for (LayerStorage& layer : facts.storage) {
    layer.scheme = QuantScheme::kW8A8Int8;
    layer.quant_config.emplace();
  }
  cluster.models["/models/int8"] = facts;
  DeploymentSpec spec = Tokens(128);
  spec.min_workers = 1;
  spec.checkpoint = "/models/int8";
  spec.dispatcher_output_dtype = DtypeChoice::kFp8;
  for (const char* id : {"w0", "w1"}) {
    cluster.worker(id).capabilities.schemes.push_back(QuantScheme::kW8A8Int8);
    cluster.worker(id).capabilities.wire_dtypes.push_back(DispatchDtype::kFp8);
    cluster.BreakStream(id);
    cluster.Register(cluster.worker(id));
  }
  cluster.Advance(seconds(1));
  SY_ASSERT_OK(cluster.Apply(spec));
  cluster.Advance(seconds(1));
  const DeploymentView refused = cluster.Deployment();
  EXPECT_EQ(refused.state, DeploymentState::kServing);
  EXPECT_THAT(refused.problem,
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));

  cluster.BreakStream("w1");
  cluster.Advance(seconds(13));
  EXPECT_EQ(cluster.ServingWorkers(), "w0");
  EXPECT_EQ(cluster.Deployment().served_revision, 1U);

  SY_ASSERT_OK(cluster.Apply(Tokens(256)));
  EXPECT_EQ(cluster.Deployment().served_revision, 3U);
  SY_EXPECT_OK(cluster.Deployment().problem);
}

TEST(RefusedTest, SaysSoAndTakesNoneOfThePlaces) {
  CoordinatorOptions options;
  options.max_deployments = 2;
  Cluster cluster(options);
  cluster.models["/models/awq"] = RefusedFacts();
  cluster.Join("w0");
  const auto named = [](const std::string& name, bool refused) {
    DeploymentSpec spec = MakeSpec();
    spec.name = name;
    if (refused) {
      spec.checkpoint = "/models/awq";
      spec.dispatcher_output_dtype = DtypeChoice::kFp8;
    }
    return spec;
  };
  for (const char* name : {"r1", "r2", "r3"}) {
    cluster.wall_time += seconds(1);
    SY_ASSERT_OK_AND_ASSIGN(const DeploymentView view, cluster.Apply(named(name, true)));
    EXPECT_EQ(view.state, DeploymentState::kRefused);
    EXPECT_THAT(view.problem, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadConfig));
  }
  cluster.Advance(milliseconds(50));
  // As many as of the others; the oldest has made room.
  std::vector<std::string> names;
  for (const DeploymentView& one : cluster.View().deployments) names.push_back(one.spec.name);
  EXPECT_THAT(names, ElementsAre("r2", "r3"));

  SY_ASSERT_OK(cluster.Apply(named("a", false)));
  SY_ASSERT_OK(cluster.Apply(named("b", false)));
  EXPECT_THAT(cluster.Apply(named("c", false)),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kBadConfig));

  SY_ASSERT_OK(cluster.Apply(named("r2", false)));
  EXPECT_EQ(cluster.Serving("r2"), 1U) << "one that is there may always be mended";
}

}  // namespace
}  // namespace switchyard
