// Deployments that an operator deletes, with a coordinator and workers that the test plays.
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::MakeSpec;

const auto kUnknown = FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel);
const auto kBusy = FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady);

class DeletionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* id : {"w0", "w1"}) cluster.Join(id);
    SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));
    ASSERT_EQ(cluster.Serving(), 1U);
  }
  // Opens a session and watches its plan.
  SessionGrant Open() {
    auto grant = cluster.OpenDecode();
    SY_EXPECT_OK(grant);
    watch = cluster.Watch(WatchOf(*grant));
    return *grant;
  }
  static WatchRequest WatchOf(const SessionGrant& grant) {
    return {grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash};
  }
  void Close(const SessionGrant& grant) {
    cluster.Step(SessionEnded{RequestId{9000}, grant.session});
  }
  void Bounce() {
    cluster.StopCoordinator();
    cluster.StartCoordinator();
    for (const char* id : {"w0", "w1"}) cluster.Register(cluster.worker(id));
  }
  bool Exists() {
    for (const DeploymentView& one : cluster.View().deployments) {
      if (one.spec.name == "demo") return true;
    }
    return false;
  }

  Cluster cluster;
  WatchId watch;
};

TEST_F(DeletionTest, WithoutSessionsItIsGoneAtOnceAndItsWorkersAreFree) {
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView view, cluster.Delete());
  EXPECT_EQ(view.state, DeploymentState::kDeleting);
  cluster.Advance(milliseconds(50));

  EXPECT_FALSE(Exists());
  EXPECT_TRUE(cluster.worker("w0").resident.empty());
  EXPECT_TRUE(cluster.worker("w1").resident.empty());
  SY_ASSERT_OK_AND_ASSIGN(const StoredState stored, cluster.store.Load());
  EXPECT_TRUE(stored.deployments.empty());
  EXPECT_THAT(cluster.OpenDecode(), kUnknown);
  EXPECT_THAT(cluster.Delete(), kUnknown);
}

TEST_F(DeletionTest, ItServesItsSessionsUntilTheLastOneCloses) {
  const SessionGrant first = Open();
  const SessionGrant second = Open();

  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView view, cluster.Delete());
  EXPECT_EQ(view.sessions, 2);
  EXPECT_EQ(view.activity,
            "serving epoch 1; waiting for 2 sessions to close, which --now would end");
  Close(first);
  cluster.Advance(seconds(30));
  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kDeleting);
  EXPECT_EQ(cluster.worker("w0").resident.size(), 1U);
  EXPECT_THAT(cluster.OpenDecode(), kUnknown) << "no session opens any more";
  EXPECT_THAT(cluster.Apply(MakeSpec(2)), kBusy);
  EXPECT_THAT(cluster.Apply(MakeSpec(2), /*dry_run=*/true), kBusy) << "as the apply would be";

  Close(second);
  cluster.Advance(milliseconds(50));
  EXPECT_FALSE(Exists());
  EXPECT_TRUE(cluster.closed_watches.at(watch).ok()) << "its source has closed it";
}

// Its sessions have to survive a worker as before.
TEST_F(DeletionTest, ItIsPlannedAnewWhileItHasSessions) {
  Open();
  cluster.Join("w2");
  cluster.Advance(milliseconds(200));
  SY_ASSERT_OK(cluster.Delete());

  cluster.BreakStream("w1");
  cluster.Advance(seconds(2));

  EXPECT_EQ(cluster.news.at(watch).back().plan.workers.size(), 2U);
  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kDeleting);
}

TEST_F(DeletionTest, AtOnceItsSessionsEndWithTheReason) {
  Open();

  SY_ASSERT_OK(cluster.Delete("demo", /*at_once=*/true));
  cluster.Advance(milliseconds(50));

  EXPECT_FALSE(Exists());
  EXPECT_THAT(cluster.closed_watches.at(watch), kUnknown);
  // Steps that run have a bounded time.
  EXPECT_EQ(cluster.worker("w0").Got<Retire>().back().within, seconds(5));
}

// Its workers take a while to free it, and its source dials again meanwhile.
TEST_F(DeletionTest, ASessionThatHasEndedIsNotTakenOverByTheSuccessor) {
  const SessionGrant grant = Open();
  for (const char* id : {"w0", "w1"}) cluster.worker(id).acks_retire = false;
  SY_ASSERT_OK(cluster.Delete("demo", /*at_once=*/true));
  cluster.Advance(seconds(1));

  EXPECT_THAT(cluster.closed_watches.at(cluster.Watch(WatchOf(grant))), kUnknown);
  for (const char* id : {"w0", "w1"}) {
    cluster.Say(cluster.worker(id), RetireAck{"demo", Epoch{1}});
  }
  cluster.Advance(milliseconds(50));
  SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));
  EXPECT_THAT(cluster.closed_watches.at(cluster.Watch(WatchOf(grant))),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
}

TEST_F(DeletionTest, ASecondRequestMayBeMoreUrgent) {
  Open();
  SY_ASSERT_OK(cluster.Delete());
  cluster.Advance(seconds(1));
  ASSERT_TRUE(Exists());

  SY_ASSERT_OK(cluster.Delete("demo", /*at_once=*/true));
  cluster.Advance(milliseconds(50));

  EXPECT_FALSE(Exists());
}

TEST_F(DeletionTest, SurvivesARestartBeforeItsSessionsHaveClosed) {
  const SessionGrant grant = Open();
  SY_ASSERT_OK(cluster.Delete());

  Bounce();
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.Deployment().state, DeploymentState::kDeleting);
  const WatchId again = cluster.Watch(WatchOf(grant));
  cluster.Advance(seconds(30));
  EXPECT_EQ(cluster.Deployment().sessions, 1) << "it waits for sources to come back";
  EXPECT_EQ(cluster.closed_watches.count(again), 0U);

  Close(grant);
  cluster.Advance(milliseconds(50));
  EXPECT_FALSE(Exists());
}

TEST_F(DeletionTest, AfterARestartWithoutItsSourcesItGoes) {
  Open();
  SY_ASSERT_OK(cluster.Delete());

  Bounce();
  cluster.Advance(seconds(13));

  EXPECT_FALSE(Exists());
  EXPECT_TRUE(cluster.worker("w0").resident.empty());
}

TEST_F(DeletionTest, AtOnceItWaitsForNoSourceAfterARestartEither) {
  Open();
  SY_ASSERT_OK(cluster.Delete());
  Bounce();

  SY_ASSERT_OK(cluster.Delete("demo", /*at_once=*/true));
  cluster.Advance(milliseconds(50));

  EXPECT_FALSE(Exists());
}

TEST_F(DeletionTest, ARestartDoesNotForgetThatItWaitsForNobody) {
  Open();
  SY_ASSERT_OK(cluster.Delete());
  cluster.hold_writes = true;
  EXPECT_THAT(cluster.Delete("demo", /*at_once=*/true), ::testing::Not(testing::IsOk()));
  cluster.ReleaseWrites(/*hold_on=*/true);  // The mark is stored, the removal is not.
  EXPECT_TRUE(Exists());

  cluster.hold_writes = false;
  Bounce();
  cluster.Advance(milliseconds(50));

  EXPECT_FALSE(Exists());
}

TEST_F(DeletionTest, AnUrgencyThatCannotBeStoredChangesNothing) {
  Open();
  SY_ASSERT_OK(cluster.Delete());
  cluster.write_status = MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk");

  EXPECT_THAT(cluster.Delete("demo", /*at_once=*/true),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kStoreWrite));

  cluster.write_status = absl::OkStatus();
  cluster.Advance(seconds(5));
  EXPECT_EQ(cluster.Deployment().sessions, 1) << "it waits as before";
}

TEST_F(DeletionTest, IsNotAcceptedUnlessItIsStored) {
  cluster.write_status = MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk");

  EXPECT_THAT(cluster.Delete(), FailsWith(absl::StatusCode::kUnavailable, Reason::kStoreWrite));

  cluster.write_status = absl::OkStatus();
  cluster.Advance(milliseconds(50));
  EXPECT_EQ(cluster.Serving(), 1U);
  SY_EXPECT_OK(cluster.OpenDecode());
}

TEST_F(DeletionTest, NoRequestIsAnsweredBeforeTheMarkIsStored) {
  Open();
  cluster.hold_writes = true;
  EXPECT_THAT(cluster.Delete(), ::testing::Not(testing::IsOk())) << "no answer";
  EXPECT_THAT(cluster.Delete("demo", /*at_once=*/true), ::testing::Not(testing::IsOk()));
  EXPECT_EQ(cluster.Serving(), 1U);

  cluster.ReleaseWrites();
  cluster.Advance(milliseconds(50));
  EXPECT_FALSE(Exists());
}

TEST_F(DeletionTest, ADiskThatFailsAtTheEndIsTriedAgain) {
  const SessionGrant grant = Open();
  SY_ASSERT_OK(cluster.Delete());
  cluster.write_status = MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk");
  Close(grant);
  cluster.Advance(milliseconds(500));
  ASSERT_TRUE(Exists());
  EXPECT_FALSE(cluster.worker("w0").resident.empty()) << "the store comes first";

  cluster.write_status = absl::OkStatus();
  cluster.Advance(seconds(1));

  EXPECT_FALSE(Exists());
}

// What a worker still holds takes its memory.
TEST_F(DeletionTest, WaitsForAWorkerThatDoesNotFreeIt) {
  cluster.worker("w1").acks_retire = false;

  SY_ASSERT_OK(cluster.Delete());
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.Deployment().activity, "waiting for worker w1 to free epoch 1");
  cluster.Say(cluster.worker("w1"), RetireAck{"demo", Epoch{1}});
  cluster.Advance(milliseconds(50));
  EXPECT_FALSE(Exists());
}

TEST_F(DeletionTest, GivesUpAChangeThatIsPrepared) {
  cluster.Join("w2").prepares = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  ASSERT_NE(cluster.Deployment().pending.value, 0U);

  SY_ASSERT_OK(cluster.Delete());
  cluster.Advance(milliseconds(50));

  EXPECT_FALSE(Exists());
  EXPECT_EQ(cluster.worker("w2").Got<Abort>().size(), 1U);
  EXPECT_TRUE(cluster.worker("w0").resident.empty());
}

// A worker that was silent for long may be loading still.
TEST_F(DeletionTest, WhatAWorkerHasLoadedTooLateIsDropped) {
  SY_ASSERT_OK(cluster.Delete());
  cluster.Advance(milliseconds(50));
  ASSERT_FALSE(Exists());

  cluster.Say(cluster.worker("w0"), PrepareAck{"demo", Epoch{2}, 7, HashOf(Plan())});

  ASSERT_EQ(cluster.worker("w0").Got<Abort>().size(), 1U);
  EXPECT_EQ(cluster.worker("w0").Got<Abort>()[0].epoch, Epoch{2});
}

// The store may say already that it serves.
TEST_F(DeletionTest, AnEpochThatIsBeingMarkedIsNotRetiredBeforeTheDeploymentHasLeftTheStore) {
  Open();
  cluster.Join("w2").commits = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  SY_ASSERT_OK(cluster.Delete());
  cluster.write_status = MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk");
  const Commit commit = cluster.worker("w2").Got<Commit>().back();
  cluster.Say(cluster.worker("w2"), CommitAck{"demo", commit.epoch, commit.hash});
  cluster.write_status = absl::OkStatus();
  cluster.hold_writes = true;

  EXPECT_THAT(cluster.Delete("demo", /*at_once=*/true), ::testing::Not(testing::IsOk()));
  cluster.ReleaseWrites(/*hold_on=*/true);  // The mark is stored, the removal is not.
  cluster.Advance(milliseconds(100));
  ASSERT_EQ(cluster.held.size(), 1U);
  EXPECT_TRUE(cluster.worker("w2").Got<Retire>().empty());

  cluster.ReleaseWrites();
  cluster.Advance(milliseconds(100));
  EXPECT_FALSE(Exists());
  EXPECT_EQ(cluster.worker("w2").Got<Retire>().size(), 2U) << "and once more with its time";
}

// A worker may come back with an epoch of the one before, and a source may still name it.
TEST_F(DeletionTest, ItsSuccessorStartsAboveItsNumbers) {
  cluster.Join("w2");
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(cluster.Serving(), 2U);
  SY_ASSERT_OK(cluster.Delete());
  cluster.Advance(milliseconds(50));

  SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));
  EXPECT_EQ(cluster.Serving(), 3U);

  SY_ASSERT_OK(cluster.Delete());
  cluster.Advance(milliseconds(50));
  Bounce();
  SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));
  cluster.Advance(milliseconds(200));
  EXPECT_EQ(cluster.Serving(), 4U) << "also after a restart";
}

TEST_F(DeletionTest, WaitsForAnApplyThatRuns) {
  cluster.hold_loads = true;
  EXPECT_FALSE(cluster.Apply(MakeSpec(1)).ok());

  EXPECT_THAT(cluster.Delete(), kBusy);
}

TEST_F(DeletionTest, MakesRoomForOthers) {
  DeploymentSpec other = MakeSpec(2);
  other.name = "other";
  other.checkpoint = "/models/other";
  cluster.models["/models/other"] = testing::MakeFacts();
  const std::int64_t bytes = cluster.models["/models/m"].ExpertBytes();
  Cluster small;
  small.models = cluster.models;
  small.Join("w0", 20 * bytes);
  small.Join("w1", 20 * bytes);
  SY_ASSERT_OK(small.Apply(MakeSpec(2)));
  SY_ASSERT_OK(small.Apply(other));
  ASSERT_EQ(small.Serving("other"), 0U) << "there is room for one";

  SY_ASSERT_OK(small.Delete());
  small.Advance(seconds(1));

  EXPECT_NE(small.Serving("other"), 0U);
}

}  // namespace
}  // namespace switchyard
