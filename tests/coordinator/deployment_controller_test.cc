// Changes of a deployment, end to end: what is sent when, and the effects of refusals and failures.
#include "coordinator/deployment_controller.h"

#include <algorithm>

#include "gtest/gtest.h"

#include "coordinator/placement/former_shares.h"
#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::MakeSpec;

class DeploymentControllerTest : public ::testing::Test {
 protected:
  // Epoch 1 serves on w0 and w1.
  void SetUp() override {
    cluster.Join("w0");
    cluster.Join("w1");
    SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));
    ASSERT_EQ(cluster.Serving(), 1U);
    cluster.written.clear();
  }
  // A third worker, and the time for a re-plan to begin.
  FakeWorker& JoinThird() {
    FakeWorker& third = cluster.Join("w2");
    cluster.Advance(milliseconds(120));
    return third;
  }
  template <typename T>
  std::vector<T> Written() const {
    std::vector<T> writes;
    for (const StoreWrite& write : cluster.written) {
      if (const T* w = std::get_if<T>(&write)) writes.push_back(*w);
    }
    return writes;
  }

  Cluster cluster;
};

TEST_F(DeploymentControllerTest, AJoinMakesANewEpochAndRetiresTheOld) {
  JoinThird();

  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  EXPECT_EQ(cluster.worker("w0").Got<Retire>(), (std::vector<Retire>{{"demo", Epoch{1}}}));
  EXPECT_TRUE(cluster.worker("w2").Got<Retire>().empty());
  EXPECT_EQ(cluster.worker("w0").resident.size(), 1U);
}

TEST_F(DeploymentControllerTest, JoinsWithinTheSettleTimeComeIntoOneEpoch) {
  cluster.Join("w2");
  cluster.Advance(milliseconds(60));
  cluster.Join("w3");
  cluster.Advance(milliseconds(60));
  EXPECT_EQ(cluster.Serving(), 1U);

  cluster.Advance(milliseconds(60));

  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2 w3");
}

TEST_F(DeploymentControllerTest, NothingIsPreparedBeforeItsNumberIsDurable) {
  cluster.hold_writes = true;
  FakeWorker& third = JoinThird();

  ASSERT_EQ(cluster.held.size(), 1U);
  EXPECT_TRUE(std::holds_alternative<ReserveEpoch>(cluster.held[0].change));
  EXPECT_TRUE(third.Got<Prepare>().empty());

  cluster.ReleaseWrites();
  EXPECT_EQ(third.Got<Prepare>().size(), 1U);
}

TEST_F(DeploymentControllerTest, NothingIsCommittedBeforeThePlanIsDurable) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNothing;
  cluster.Advance(milliseconds(120));
  ASSERT_EQ(third.Got<Prepare>().size(), 1U);
  const Prepare prepare = third.Got<Prepare>().front();
  cluster.hold_writes = true;

  cluster.Say(third, PrepareAck{"demo", Epoch{2}, prepare.nonce, prepare.hash});

  ASSERT_EQ(cluster.held.size(), 1U);
  EXPECT_EQ(std::get<CommitPlan>(cluster.held[0].change).hash, prepare.hash);
  EXPECT_EQ(std::get<CommitPlan>(cluster.held[0].change).plan, CanonicalBytes(prepare.plan));
  EXPECT_TRUE(third.Got<Commit>().empty());
  cluster.ReleaseWrites();
  EXPECT_EQ(third.Got<Commit>(), (std::vector<Commit>{{"demo", Epoch{2}, prepare.hash}}));
}

TEST_F(DeploymentControllerTest, SourcesHearOfAnEpochAfterEveryCommitAckAlone) {
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.OpenDecode());
  const WatchId watch =
      cluster.Watch({grant.session, "demo", Phase::kDecode, grant.plan.epoch, grant.hash});
  FakeWorker& third = cluster.Join("w2");
  third.commits = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(third.Got<Commit>().size(), 1U);
  EXPECT_TRUE(cluster.news[watch].empty());
  EXPECT_TRUE(cluster.worker("w0").Got<Retire>().empty());

  cluster.Say(third, CommitAck{"demo", Epoch{2}, third.Got<Commit>().front().hash});

  ASSERT_EQ(cluster.news[watch].size(), 1U);
  EXPECT_EQ(cluster.news[watch][0].plan.epoch, Epoch{2});
  EXPECT_EQ(Written<MarkServing>().size(), 1U) << "durable before sources are told";
  EXPECT_EQ(cluster.worker("w0").Got<Retire>().size(), 1U);
}

TEST_F(DeploymentControllerTest, ANackAbortsAndTheOldEpochServesOn) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNack;
  cluster.Advance(milliseconds(200));

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.worker("w0").Got<Abort>(), (std::vector<Abort>{{"demo", Epoch{2}}}));
  const DeploymentView view = cluster.Deployment();
  EXPECT_NE(view.activity.find("epoch 2 was given up"), std::string::npos) << view.activity;
  EXPECT_THAT(view.problem, FailsWith(absl::StatusCode::kDataLoss, Reason::kWeightHash));
  EXPECT_NE(view.problem.message().find("worker w2"), absl::string_view::npos);
  EXPECT_EQ(MetadataOf(view.problem).at("worker"), "w2");
  EXPECT_EQ(view.changes.served, 1U);
  EXPECT_EQ(view.changes.failed, 1U);
  const CoordinatorTimes times = cluster.View().times;
  EXPECT_EQ(times.change_served.count(), 1U);
  EXPECT_EQ(times.change_failed.count(), 1U);
  EXPECT_LE(times.change_failed.sum, std::uint64_t{200'000'000}) << "ns: it was advanced by 200 ms";
  EXPECT_EQ(times.applied.count(), 1U);
  EXPECT_EQ(times.refused.count(), 0U);
  SY_EXPECT_OK(cluster.OpenDecode());
}

TEST_F(DeploymentControllerTest, RetriesWithGrowingDelaysAndNewNumbers) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNack;
  cluster.worker("w1").prepares = Answers::kNack;  // Too many culprits to go without them.
  cluster.Advance(seconds(4));
  const std::size_t early = third.Got<Prepare>().size();
  cluster.Advance(seconds(20));
  const auto prepares = third.Got<Prepare>();

  EXPECT_GE(early, 3U);
  EXPECT_LE(prepares.size() - early, 5U) << "at most one each 5 s";
  for (std::size_t i = 1; i < prepares.size(); ++i) {
    EXPECT_GT(prepares[i].plan.epoch, prepares[i - 1].plan.epoch);
  }
  third.prepares = cluster.worker("w1").prepares = Answers::kAck;
  cluster.Advance(seconds(6));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  SY_EXPECT_OK(cluster.Deployment().problem);
}

TEST_F(DeploymentControllerTest, GoesWithoutAWorkerThatFailsTwice) {
  cluster.worker("w1").prepares = Answers::kNack;
  FakeWorker& third = JoinThird();
  cluster.Advance(seconds(2));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");
  EXPECT_GT(cluster.Serving(), 1U);
  ASSERT_EQ(cluster.Deployment().left_out.size(), 1U);
  EXPECT_NE(cluster.Deployment().left_out[0].find("w1: failed twice"), std::string::npos);
  EXPECT_EQ(third.resident.size(), 1U);

  cluster.worker("w1").prepares = Answers::kAck;
  cluster.Advance(seconds(6));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2") << "after the quarantine";
}

// Its memory is not its fault, and without it there would be less of it.
TEST_F(DeploymentControllerTest, AWorkerWithoutRoomIsNotQuarantined) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNothing;
  cluster.Advance(milliseconds(120));
  for (int i = 0; i < 3; ++i) {
    ASSERT_FALSE(third.Got<Prepare>().empty());
    const Prepare prepare = third.Got<Prepare>().back();
    third.inbox.clear();
    cluster.Say(third, PrepareNack{"demo", prepare.plan.epoch, prepare.nonce,
                                   MakeError(absl::StatusCode::kResourceExhausted,
                                             Reason::kOutOfMemory, "no room")});
    cluster.Advance(seconds(2));
  }
  EXPECT_FALSE(third.Got<Prepare>().empty()) << "it is in every plan";
}

TEST_F(DeploymentControllerTest, AJoinSaysWhatMovesAndMovesOneShare) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNothing;
  cluster.Advance(milliseconds(120));

  EXPECT_EQ(cluster.Deployment().activity,
            "preparing epoch 2 (10 of 32 experts move; w2 joins): waiting for w2 (not begun)");
}

// A worker that comes back gets what it had: its page cache may still have it.
TEST_F(DeploymentControllerTest, ARestartedWorkerGetsItsExpertsBack) {
  JoinThird();
  const auto share_of = [&](const std::string& id) {
    const Plan& plan = cluster.Deployment().serving->plan;
    return SharesIn(plan).at(static_cast<std::size_t>(plan.FindWorker(id)->value));
  };
  const std::vector<LayerExpert> had = share_of("w1");
  cluster.BreakStream("w1");
  cluster.Advance(seconds(1));
  ASSERT_EQ(cluster.ServingWorkers(), "w0 w2");

  cluster.Restart("w1");
  cluster.Advance(seconds(1));

  ASSERT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  // Its share may be one less now.
  const std::vector<LayerExpert> has = share_of("w1");
  EXPECT_GE(has.size() + 1, had.size());
  EXPECT_TRUE(std::includes(had.begin(), had.end(), has.begin(), has.end()));
}

TEST_F(DeploymentControllerTest, AcksOfAnotherAttemptOrHashDoNotCount) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  const Prepare prepare = third.Got<Prepare>().front();
  PlanHash other = prepare.hash;
  other.bytes[3] ^= 1;

  cluster.Say(third, PrepareAck{"demo", Epoch{2}, prepare.nonce + 1, prepare.hash});
  cluster.Say(third, PrepareAck{"demo", Epoch{2}, prepare.nonce, other});
  cluster.Say(third, PrepareAck{"demo", Epoch{1}, prepare.nonce, prepare.hash});
  cluster.Say(third, PrepareAck{"other", Epoch{2}, prepare.nonce, prepare.hash});
  EXPECT_TRUE(third.Got<Commit>().empty());

  cluster.Say(third, PrepareAck{"demo", Epoch{2}, prepare.nonce, prepare.hash});
  EXPECT_EQ(third.Got<Commit>().size(), 1U);
}

TEST_F(DeploymentControllerTest, AWorkerLostInPrepareAbortsAndIsPlannedAround) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(third.Got<Prepare>().size(), 1U);

  cluster.BreakStream("w2");
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.Serving(), 1U) << "what served, serves: there is nothing to change";
  EXPECT_EQ(cluster.worker("w0").Got<Abort>().size(), 1U);
  EXPECT_EQ(cluster.worker("w0").resident.size(), 1U);
}

TEST_F(DeploymentControllerTest, AWorkerLostInCommitSupersedesTheEpoch) {
  FakeWorker& third = cluster.Join("w2");
  third.commits = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(third.Got<Commit>().size(), 1U);

  cluster.BreakStream("w2");
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.worker("w0").Got<Retire>(), (std::vector<Retire>{{"demo", Epoch{2}}}))
      << "the epoch that never served goes, the one that serves stays";
  EXPECT_EQ(cluster.Serving(), 1U);
}

TEST_F(DeploymentControllerTest, ACommitNackSupersedesTheEpoch) {
  cluster.worker("w1").commits = Answers::kNack;
  JoinThird();
  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_FALSE(cluster.Deployment().problem.ok());
  EXPECT_EQ(cluster.worker("w2").Got<Retire>(), (std::vector<Retire>{{"demo", Epoch{2}}}));
  EXPECT_EQ(cluster.worker("w1").Got<Abort>(), (std::vector<Abort>{{"demo", Epoch{2}}}))
      << "it may hold what it staged";

  cluster.worker("w1").commits = Answers::kAck;
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.Serving(), 3U);
}

TEST_F(DeploymentControllerTest, ASilentPrepareTimesOut) {
  CoordinatorOptions options;
  options.prepare_timeout = seconds(3);
  Cluster quick(options);
  quick.Join("w0");
  quick.worker("w0").prepares = Answers::kNothing;
  SY_ASSERT_OK(quick.Apply(MakeSpec()));
  quick.Advance(milliseconds(3100));

  EXPECT_THAT(quick.Deployment().problem,
              FailsWith(absl::StatusCode::kDeadlineExceeded, Reason::kNotReady));
  EXPECT_NE(quick.Deployment().problem.message().find("w0"), absl::string_view::npos);
  quick.worker("w0").prepares = Answers::kAck;
  quick.Advance(seconds(1));
  EXPECT_EQ(quick.Serving(), 2U);
}

TEST_F(DeploymentControllerTest, NoThirdEpochIsPreparedBeforeTheFirstIsFree) {
  cluster.worker("w0").acks_retire = false;
  JoinThird();
  ASSERT_EQ(cluster.Serving(), 2U);

  cluster.Join("w3");
  cluster.Advance(seconds(5));
  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_TRUE(cluster.worker("w3").Got<Prepare>().empty());
  EXPECT_NE(cluster.Deployment().activity.find("w0 to free epoch 1"), std::string::npos);

  cluster.Say(cluster.worker("w0"), RetireAck{"demo", Epoch{1}});
  EXPECT_EQ(cluster.Serving(), 3U);
}

TEST_F(DeploymentControllerTest, ADeadHolderFreesItsEpoch) {
  cluster.worker("w0").acks_retire = false;
  JoinThird();
  cluster.Join("w3");
  cluster.Advance(seconds(1));
  ASSERT_EQ(cluster.Serving(), 2U);

  cluster.BreakStream("w0");
  cluster.Advance(milliseconds(400));

  EXPECT_EQ(cluster.Serving(), 3U);
  EXPECT_EQ(cluster.ServingWorkers(), "w1 w2 w3");
}

// Steps on epoch 1 may go on for a minute, and nothing can replace epoch 2 meanwhile.
TEST_F(DeploymentControllerTest, ADeathUrgesTheEpochThatStillRetires) {
  cluster.worker("w0").acks_retire = false;
  JoinThird();
  ASSERT_EQ(cluster.Serving(), 2U);
  const Retire first{"demo", Epoch{1}};
  EXPECT_EQ(cluster.worker("w0").Got<Retire>(), (std::vector<Retire>{first}));

  cluster.BreakStream("w2");
  cluster.Advance(milliseconds(200));
  EXPECT_EQ(cluster.worker("w0").Got<Retire>(), (std::vector<Retire>{first})) << "in its grace";
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.worker("w0").Got<Retire>(),
            (std::vector<Retire>{first, {"demo", Epoch{1}, seconds(5)}}));
  cluster.Say(cluster.worker("w0"), RetireAck{"demo", Epoch{1}});
  EXPECT_EQ(cluster.Serving(), 3U);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1");
}

TEST_F(DeploymentControllerTest, AFailingStoreStopsChangesButNotService) {
  cluster.write_status =
      MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk is full");
  JoinThird();
  cluster.Advance(seconds(2));

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_THAT(cluster.Deployment().problem,
              FailsWith(absl::StatusCode::kUnavailable, Reason::kStoreWrite));
  SY_EXPECT_OK(cluster.OpenDecode());
  EXPECT_TRUE(cluster.worker("w2").Got<Prepare>().empty());

  cluster.write_status = absl::OkStatus();
  cluster.Advance(seconds(6));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
}

TEST_F(DeploymentControllerTest, AFailedPlanWriteAborts) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  const Prepare prepare = third.Got<Prepare>().front();
  cluster.write_status =
      MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk is full");

  cluster.Say(third, PrepareAck{"demo", Epoch{2}, prepare.nonce, prepare.hash});

  EXPECT_TRUE(third.Got<Commit>().empty());
  EXPECT_EQ(third.Got<Abort>(), (std::vector<Abort>{{"demo", Epoch{2}}}));
  cluster.write_status = absl::OkStatus();
  third.prepares = Answers::kAck;
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.Serving(), 3U) << "number 2 is never used again";
}

TEST_F(DeploymentControllerTest, AFailedServingMarkIsTriedAgainAndNobodyIsTold) {
  FakeWorker& third = cluster.Join("w2");
  third.commits = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  cluster.write_status =
      MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk is full");
  cluster.Say(third, CommitAck{"demo", Epoch{2}, third.Got<Commit>().front().hash});
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.Serving(), 1U);

  cluster.write_status = absl::OkStatus();
  cluster.Advance(seconds(6));

  EXPECT_EQ(cluster.Serving(), 2U);
}

// What the store calls failed may be on disk: a coordinator that came back would serve it.
TEST_F(DeploymentControllerTest, AnEpochWhoseMarkMayBeOnDiskIsNotRetired) {
  FakeWorker& third = cluster.Join("w2");
  third.commits = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  cluster.write_status =
      MakeError(absl::StatusCode::kUnavailable, Reason::kStoreWrite, "disk is full");
  cluster.Say(third, CommitAck{"demo", Epoch{2}, third.Got<Commit>().front().hash});

  cluster.BreakStream("w2");
  cluster.Advance(seconds(1));

  EXPECT_TRUE(cluster.worker("w0").Got<Retire>().empty());
  cluster.write_status = absl::OkStatus();
  cluster.Advance(seconds(6));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1");
  EXPECT_EQ(cluster.Serving(), 3U);
}

TEST_F(DeploymentControllerTest, ReappliedWithNewWeightsItMovesToThem) {
  cluster.models["/models/m"] = testing::MakeFacts({.weights = 9});

  SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));

  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_EQ(cluster.Deployment().serving->plan.manifest,
            testing::MakeFacts({.weights = 9}).manifest.Hash());
}

TEST_F(DeploymentControllerTest, ReappliedUnchangedItDoesNothing) {
  SY_ASSERT_OK_AND_ASSIGN(const DeploymentView view, cluster.Apply(MakeSpec(2)));
  cluster.Advance(seconds(1));

  EXPECT_EQ(view.state, DeploymentState::kServing);
  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_TRUE(cluster.written.empty());
}

TEST_F(DeploymentControllerTest, APrepareResentAfterReapplyIsStillTheOldOne) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  const Prepare first = third.Got<Prepare>().front();
  cluster.models["/models/m"] = testing::MakeFacts({.weights = 9});
  SY_ASSERT_OK(cluster.Apply(MakeSpec(2)));

  cluster.BreakStream("w2");
  cluster.Register(third);

  ASSERT_EQ(third.Got<Prepare>().size(), 2U);
  EXPECT_EQ(third.Got<Prepare>()[1], first);
}

// The worker staged it while its stream was broken, so ABORT did not reach it.
TEST_F(DeploymentControllerTest, WhatWasStagedForAnAttemptThatIsOverIsAborted) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = cluster.worker("w1").prepares = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(third.Got<Prepare>().size(), 1U);
  const Prepare prepare = third.Got<Prepare>().front();
  cluster.BreakStream("w2");
  cluster.Say(cluster.worker("w1"), PrepareNack{"demo", Epoch{2}, prepare.nonce,
                                                MakeError(absl::StatusCode::kDataLoss,
                                                          Reason::kWeightHash, "x differs")});
  cluster.Register(third);
  ASSERT_TRUE(third.Got<Abort>().empty()) << "it said that it held nothing";

  cluster.Say(third, PrepareAck{"demo", Epoch{2}, prepare.nonce, prepare.hash});

  EXPECT_EQ(third.Got<Abort>(), (std::vector<Abort>{{"demo", Epoch{2}}}));
}

TEST_F(DeploymentControllerTest, AWorkerThatHoldsSomethingElseIsAskedWhenThatIsGone) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  third.inbox.clear();
  cluster.BreakStream("w2");
  const PlanHash other = Sha256("another plan");
  third.resident[{"demo", Epoch{1}}] = {"demo", Epoch{1}, other, true};
  third.acks_retire = false;
  third.prepares = Answers::kAck;

  cluster.Register(third);

  EXPECT_EQ(third.Got<Retire>(), (std::vector<Retire>{{"demo", Epoch{1}}}));
  EXPECT_TRUE(third.Got<Prepare>().empty()) << "it would hold two others beside it";
  third.resident.clear();
  cluster.Say(third, RetireAck{"demo", Epoch{1}});
  EXPECT_EQ(third.Got<Prepare>().size(), 1U);
  EXPECT_EQ(cluster.Serving(), 2U);
}

TEST_F(DeploymentControllerTest, WhatIsStaleIsAbortedBeforeTheNextIsAskedFor) {
  FakeWorker& third = cluster.Join("w2");
  third.prepares = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  third.inbox.clear();
  cluster.BreakStream("w2");
  third.resident[{"demo", Epoch{1}}] = {"demo", Epoch{1}, Sha256("another plan"), false};

  cluster.Register(third);

  std::vector<std::size_t> kinds;
  for (const CoordinatorMessage& message : third.inbox) kinds.push_back(message.index());
  const CoordinatorMessage expected[] = {Registered{}, Abort{}, Prepare{}};
  ASSERT_EQ(kinds.size(), std::size(expected));
  for (std::size_t i = 0; i < kinds.size(); ++i) EXPECT_EQ(kinds[i], expected[i].index()) << i;
}

TEST_F(DeploymentControllerTest, AWorkerThatComesBackWithoutWhatItPreparedSupersedesTheEpoch) {
  FakeWorker& third = cluster.Join("w2");
  third.commits = Answers::kNothing;
  cluster.Advance(milliseconds(200));
  ASSERT_EQ(third.Got<Commit>().size(), 1U);
  cluster.BreakStream("w2");
  third.resident.clear();

  cluster.Register(third);

  const absl::Status problem = cluster.Deployment().problem;
  EXPECT_THAT(problem, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  EXPECT_EQ(MetadataOf(problem).at("worker"), "w2");
  EXPECT_EQ(cluster.worker("w0").Got<Retire>(), (std::vector<Retire>{{"demo", Epoch{2}}}));
}

TEST(DeploymentQuarantineTest, IsNotForWorkersThatTheModelNeeds) {
  Cluster tight;  // 6144 bytes of weights
  tight.Join("w0", 3200);
  tight.Join("w1", 3200).prepares = Answers::kNack;
  SY_ASSERT_OK(tight.Apply(MakeSpec(1)));
  tight.Advance(seconds(2));
  ASSERT_GE(tight.worker("w1").Got<Prepare>().size(), 2U) << "it has failed twice";
  ASSERT_EQ(tight.Serving(), 0U);
  tight.worker("w1").prepares = Answers::kAck;

  tight.Advance(seconds(2));

  EXPECT_EQ(tight.ServingWorkers(), "w0 w1") << "w0 alone cannot hold it";
}

}  // namespace
}  // namespace switchyard
