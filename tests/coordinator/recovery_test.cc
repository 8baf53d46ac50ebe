// A coordinator that ends at any point of a change and comes back to its store.
#include "coordinator/recovery.h"

#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::MakeSpec;

class RecoveryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"w0", "w1", "w2"}) cluster.Join(id);
    SY_ASSERT_OK(cluster.Apply(MakeSpec(3)));
    ASSERT_EQ(cluster.Serving(), 1U);
  }
  void Bounce() {
    cluster.StopCoordinator();
    cluster.StartCoordinator();
    cluster.written.clear();
  }
  void RegisterAll() {
    for (const char* id : {"w0", "w1", "w2"}) cluster.Register(cluster.worker(id));
  }
  Cluster cluster;
};

TEST_F(RecoveryTest, TheSamePlanStaysWhenAllWorkersComeBack) {
  Bounce();
  EXPECT_EQ(cluster.Serving(), 0U);
  RegisterAll();
  cluster.Advance(seconds(30));

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.worker("w1").Got<Prepare>().size(), 1U) << "no needless reload";
  EXPECT_TRUE(cluster.written.empty());
  SY_EXPECT_OK(cluster.OpenDecode());
}

// Canonical bytes begin with their format, which an earlier version counted one lower.
std::string AsOlder(std::string plan) {
  EXPECT_GT(plan[0], 1);
  --plan[0];
  return plan;
}

// The same store, with its plans as an earlier version wrote them.
MemoryStore WithOlderPlans(MemoryStore& store) {
  MemoryStore older;
  const auto stored = store.Load();
  EXPECT_TRUE(stored.ok()) << stored.status();
  for (const StoredDeployment& one : stored->deployments) {
    SY_EXPECT_OK(older.Write(PutDeployment{one.deployment, one.record}));
    for (const StoredPlan& plan : one.plans) {
      const std::string bytes = AsOlder(plan.plan);
      SY_EXPECT_OK(older.Write(ReserveEpoch{one.deployment, plan.epoch}));
      SY_EXPECT_OK(older.Write(CommitPlan{one.deployment, plan.epoch, Sha256(bytes), bytes}));
    }
    SY_EXPECT_OK(older.Write(MarkServing{one.deployment, one.serving}));
  }
  return older;
}

// After an upgrade: the numbers go on, and what workers hold of the older plan is let go.
TEST_F(RecoveryTest, PlansOfAnEarlierVersionArePlannedAnew) {
  cluster.StopCoordinator();
  cluster.store = WithOlderPlans(cluster.store);
  cluster.StartCoordinator();
  RegisterAll();
  cluster.Advance(seconds(5));
  EXPECT_EQ(cluster.Serving(), 2U);
  cluster.Advance(seconds(8));  // Its sources may not have dialed before.

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  EXPECT_EQ(cluster.worker("w0").resident.size(), 1U);
  SY_EXPECT_OK(cluster.OpenDecode());
}

TEST_F(RecoveryTest, DamagedPlansOfAnEarlierVersionAreRefused) {
  MemoryStore older = WithOlderPlans(cluster.store);
  SY_ASSERT_OK_AND_ASSIGN(StoredState stored, older.Load());
  stored.deployments[0].plans[0].plan.back() ^= 1;

  EXPECT_THAT(Recover(stored), FailsWith(absl::StatusCode::kDataLoss, Reason::kStoreWrite));
}

TEST_F(RecoveryTest, WorkersOfThePlanHaveJoinTimeoutToComeBack) {
  Bounce();
  cluster.Register(cluster.worker("w0"));
  cluster.Register(cluster.worker("w1"));
  cluster.Advance(seconds(19));
  EXPECT_EQ(cluster.Serving(), 0U);
  EXPECT_NE(cluster.Deployment().activity.find("come back: w2"), std::string::npos);
  EXPECT_EQ(cluster.worker("w0").Got<Prepare>().size(), 1U);

  cluster.Advance(seconds(2));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1");
  EXPECT_EQ(cluster.Serving(), 2U);
}

TEST_F(RecoveryTest, AWorkerThatRestartedMeanwhileIsPlannedAnewAtOnce) {
  cluster.StopCoordinator();
  cluster.StartCoordinator();
  cluster.Register(cluster.worker("w0"));
  cluster.Register(cluster.worker("w1"));
  cluster.Restart("w2");
  cluster.Advance(milliseconds(200));

  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
}

TEST_F(RecoveryTest, AfterPrepareTheNumberIsNeverUsedAgain) {
  FakeWorker& late = cluster.Join("w3");
  late.prepares = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(late.Got<Prepare>().back().plan.epoch, Epoch{2});
  ASSERT_EQ(cluster.worker("w0").resident.size(), 2U);

  Bounce();
  RegisterAll();

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.worker("w0").Got<Abort>(), (std::vector<Abort>{{"demo", Epoch{2}}}));
  late.prepares = Answers::kAck;
  cluster.Register(late);
  cluster.Advance(milliseconds(200));
  EXPECT_EQ(cluster.Serving(), 3U);
}

TEST_F(RecoveryTest, AfterTheDurableWriteTheChangeIsFinished) {
  FakeWorker& late = cluster.Join("w3");
  for (const char* id : {"w1", "w2"}) cluster.worker(id).commits = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  ASSERT_TRUE(cluster.worker("w0").resident.at({"demo", Epoch{2}}).committed);
  ASSERT_FALSE(cluster.worker("w1").resident.at({"demo", Epoch{2}}).committed);
  for (const char* id : {"w1", "w2"}) cluster.worker(id).commits = Answers::kAck;

  Bounce();
  RegisterAll();
  EXPECT_EQ(cluster.Serving(), 1U) << "until the last has come back";
  cluster.Register(late);

  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_EQ(cluster.worker("w1").Got<Commit>().size(), 3U) << "epoch 1, epoch 2 and again";
  EXPECT_EQ(cluster.worker("w1").Got<Prepare>().size(), 2U);
  EXPECT_EQ(cluster.worker("w0").resident.size(), 2U) << "sources of epoch 1 may dial late";
  cluster.Advance(seconds(13));
  EXPECT_EQ(cluster.worker("w0").resident.size(), 1U);
}

TEST_F(RecoveryTest, ACommittedEpochWhoseWorkerIsGoneIsSuperseded) {
  FakeWorker& late = cluster.Join("w3");
  late.commits = Answers::kNothing;
  cluster.Advance(milliseconds(200));

  Bounce();
  RegisterAll();
  cluster.Advance(seconds(21));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  EXPECT_EQ(cluster.Serving(), 1U) << "what served, serves";
  EXPECT_EQ(cluster.worker("w0").resident.size(), 1U);
}

TEST_F(RecoveryTest, AfterTheAnnouncementTheOldEpochIsRetired) {
  cluster.worker("w0").acks_retire = false;
  cluster.Join("w3");
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(cluster.Serving(), 2U);
  ASSERT_EQ(cluster.worker("w0").resident.size(), 2U);
  cluster.worker("w0").acks_retire = true;

  Bounce();
  RegisterAll();
  cluster.Register(cluster.worker("w3"));
  cluster.Advance(seconds(11));
  EXPECT_EQ(cluster.worker("w0").resident.size(), 2U) << "its sources may not have dialed yet";
  cluster.Advance(seconds(2));

  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_EQ(cluster.worker("w0").resident.size(), 1U);
}

// Sources wait between dials while the coordinator is away, and then need a moment to come back.
TEST_F(RecoveryTest, AWorkerThatLeavesServesSourcesThatDialLate) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.OpenDecode());
  Bounce();
  RegisterAll();
  cluster.Say(cluster.worker("w1"), Leave{});
  cluster.Advance(seconds(8));
  ASSERT_EQ(cluster.ServingWorkers(), "w0 w2");
  EXPECT_TRUE(cluster.worker("w1").Got<Retire>().empty());
  EXPECT_TRUE(cluster.worker("w1").Got<Goodbye>().empty());

  const WatchId watch =
      cluster.Watch({grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash});
  ASSERT_EQ(cluster.news[watch].size(), 1U);
  EXPECT_EQ(cluster.news[watch][0].plan.epoch, Epoch{2});
  cluster.Advance(seconds(5));

  EXPECT_EQ(cluster.worker("w1").Got<Retire>().size(), 1U);
  EXPECT_EQ(cluster.worker("w1").Got<Goodbye>().size(), 1U);
}

TEST_F(RecoveryTest, SourcesMayWatchWithAPlanThatTheStoreHolds) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.OpenDecode());
  Bounce();

  const WatchId watch =
      cluster.Watch({grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash});
  EXPECT_FALSE(cluster.closed_watches.contains(watch));
  RegisterAll();
  cluster.Join("w3");
  cluster.Advance(milliseconds(200));

  ASSERT_EQ(cluster.news[watch].size(), 1U);
  EXPECT_EQ(cluster.news[watch][0].plan.epoch, Epoch{2});
}

TEST_F(RecoveryTest, ASourceOnTheEpochBeforeHearsOfTheServingOne) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.OpenDecode());
  cluster.Join("w3");
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(cluster.Serving(), 2U);
  Bounce();

  const WatchId watch =
      cluster.Watch({grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash});

  ASSERT_EQ(cluster.news[watch].size(), 1U);
  EXPECT_EQ(cluster.news[watch][0].plan.epoch, Epoch{2});
}

TEST_F(RecoveryTest, OtherWatchesAreRefused) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.OpenDecode());
  Bounce();
  const auto stale = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch);
  WatchRequest order{grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash};

  WatchRequest other = order;
  other.hash.bytes[0] ^= 1;
  EXPECT_THAT(cluster.closed_watches[cluster.Watch(other)], stale);
  other = order;
  other.epoch = Epoch{9};
  EXPECT_THAT(cluster.closed_watches[cluster.Watch(other)], stale);
  other = order;
  other.deployment = "none";
  EXPECT_THAT(cluster.closed_watches[cluster.Watch(other)],
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

// The source names a plan that a worker had committed, and goes on with the plan that replaces it.
TEST_F(RecoveryTest, WithoutItsStoreItKnowsSessionsByThePlansOfWorkers) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.OpenDecode());
  const WatchRequest order{grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash};
  WatchRequest other = order;
  other.hash.bytes[0] ^= 1;
  const auto stale = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch);
  cluster.StopCoordinator();
  cluster.store = MemoryStore();
  cluster.StartCoordinator();
  cluster.Register(cluster.worker("w0"));  // before the deployment is known
  SY_ASSERT_OK(cluster.Apply(MakeSpec(3)));

  EXPECT_THAT(cluster.closed_watches[cluster.Watch(other)], stale);
  const WatchId watch = cluster.Watch(order);
  cluster.Register(cluster.worker("w1"));
  cluster.Register(cluster.worker("w2"));
  cluster.Advance(milliseconds(200));

  EXPECT_EQ(cluster.closed_watches.count(watch), 0U);
  ASSERT_EQ(cluster.news[watch].size(), 1U);
  EXPECT_EQ(cluster.news[watch][0].plan.epoch, Epoch{2});
  EXPECT_EQ(cluster.Deployment().sessions, 1);
  const WatchId late = cluster.Watch(order);
  ASSERT_EQ(cluster.news[late].size(), 1U) << "its watch came back after the new plan";
}

// It serves under number 1 already when a worker reports a higher one. The source takes only a plan
// above that.
TEST_F(RecoveryTest, WithoutItsStoreALateReportOfAHigherNumberMovesItsSessionsOn) {
  cluster.Join("w3");
  cluster.Advance(milliseconds(200));
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.OpenDecode());
  ASSERT_EQ(grant.plan.epoch, Epoch{2});
  const WatchRequest order{grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash};
  cluster.StopCoordinator();
  cluster.store = MemoryStore();
  cluster.StartCoordinator();
  SY_ASSERT_OK(cluster.Apply(MakeSpec(1)));
  cluster.Restart("w0");
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(cluster.Serving(), 1U);

  cluster.Register(cluster.worker("w1"));

  EXPECT_THAT(cluster.closed_watches[cluster.Watch(order)],
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch))
      << "nothing that serves follows its plan; it dials again";
  cluster.Advance(milliseconds(200));
  EXPECT_EQ(cluster.Serving(), 3U);
  const WatchId watch = cluster.Watch(order);
  ASSERT_EQ(cluster.news[watch].size(), 1U);
  EXPECT_EQ(cluster.news[watch][0].plan.epoch, Epoch{3});
}

// Sessions of before the restart attach to workers that join after it, and new ones to workers that
// were prepared before it.
TEST_F(RecoveryTest, TheKeyOfGrantsIsInTheStore) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant before, cluster.OpenDecode());
  const GrantKeys keys = cluster.worker("w0").Got<Prepare>().back().grant_keys;

  Bounce();
  RegisterAll();
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant after, cluster.OpenDecode());
  cluster.Join("w3");
  cluster.Advance(milliseconds(200));

  EXPECT_TRUE(VerifyGrant(keys, ClaimsOf(after), after.signature));
  EXPECT_EQ(cluster.worker("w3").Got<Prepare>().back().grant_keys, keys);
  EXPECT_TRUE(VerifyGrant(keys, ClaimsOf(before), before.signature));
}

// The workers say with which key the open sessions were signed; new ones get the new key.
TEST_F(RecoveryTest, WithoutItsStoreWorkersStillTakeTheGrantsOfBefore) {
  SY_ASSERT_OK_AND_ASSIGN(SessionGrant grant, cluster.OpenDecode());
  std::vector<SessionGrant> grants{grant};
  for (int loss = 0; loss < 2; ++loss) {
    cluster.StopCoordinator();
    cluster.store = MemoryStore();
    cluster.StartCoordinator();
    if (loss == 0) cluster.Register(cluster.worker("w0"));  // before the deployment is known
    SY_ASSERT_OK(cluster.Apply(MakeSpec(3)));
    for (const char* id : {"w0", "w1", "w2"}) {
      if (cluster.worker(id).stream.value == 0) cluster.Register(cluster.worker(id));
    }
    cluster.Advance(milliseconds(200));
    SY_ASSERT_OK_AND_ASSIGN(grant, cluster.OpenDecode());
    grants.push_back(grant);
  }
  cluster.Join("w3");
  cluster.Advance(seconds(13));  // until sources of the epoch before have dialed

  const GrantKeys keys = cluster.worker("w3").Got<Prepare>().back().grant_keys;

  EXPECT_EQ(keys.size(), 3U);
  for (const SessionGrant& each : grants) {
    EXPECT_TRUE(VerifyGrant(keys, ClaimsOf(each), each.signature));
  }
  EXPECT_EQ(SignGrant(keys[0], ClaimsOf(grant)), grant.signature) << "the first one signs";
}

// An upgrade: the record has no key, and gets one that survives the next restart.
TEST_F(RecoveryTest, ARecordWithoutAKeyGetsOne) {
  auto stored = cluster.store.Load();
  SY_ASSERT_OK(stored);
  std::string bytes = stored->deployments.front().record;
  bytes.resize(bytes.size() - 4 - 8 - 1 - 1 - 8 - 32);  // nor what later formats added
  bytes[0] = 3;
  cluster.StopCoordinator();
  SY_ASSERT_OK(cluster.store.Write(PutDeployment{"demo", bytes}));
  cluster.StartCoordinator();
  RegisterAll();
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.OpenDecode());

  Bounce();
  RegisterAll();
  cluster.Join("w3");
  cluster.Advance(milliseconds(200));

  const GrantKeys keys = cluster.worker("w3").Got<Prepare>().back().grant_keys;
  EXPECT_TRUE(VerifyGrant(keys, ClaimsOf(grant), grant.signature));
  EXPECT_EQ(SignGrant(keys[0], ClaimsOf(grant)), grant.signature);
}

TEST_F(RecoveryTest, WithoutItsStoreItLearnsFromTheWorkersWhichNumbersAreTaken) {
  cluster.Join("w3");
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(cluster.Serving(), 2U);
  cluster.StopCoordinator();
  cluster.store = MemoryStore();
  cluster.StartCoordinator();
  RegisterAll();
  EXPECT_EQ(cluster.worker("w0").Got<Retire>().size(), 1U) << "what workers hold is left alone";

  SY_ASSERT_OK(cluster.Apply(MakeSpec(3)));

  EXPECT_EQ(cluster.Serving(), 3U);
  cluster.Advance(seconds(13));
  EXPECT_EQ(cluster.worker("w0").resident.size(), 1U);
}

TEST(RecoverTest, RefusesDamagedRecordsAndPlans) {
  Cluster cluster;
  cluster.Join("w0");
  SY_ASSERT_OK(cluster.Apply(MakeSpec()));
  SY_ASSERT_OK_AND_ASSIGN(const auto good, cluster.store.Load());
  SY_ASSERT_OK(Recover(good));
  const auto damaged = FailsWith(absl::StatusCode::kDataLoss, Reason::kStoreWrite);

  auto bad = good;
  bad.deployments[0].record.pop_back();
  EXPECT_THAT(Recover(bad), damaged);
  bad = good;
  bad.deployments[0].plans[0].plan[40] ^= 1;
  EXPECT_THAT(Recover(bad), damaged);
  bad = good;
  bad.deployments[0].plans[0].hash.bytes[0] ^= 1;
  EXPECT_THAT(Recover(bad), damaged);
  bad = good;
  bad.deployments[0].plans.clear();
  EXPECT_THAT(Recover(bad), damaged);
  bad = good;
  bad.deployments[0].deployment = "other";
  EXPECT_THAT(Recover(bad), damaged);
}

}  // namespace
}  // namespace switchyard
