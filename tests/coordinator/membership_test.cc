// Joins, deaths, leases, incarnations, leaves, as a whole coordinator shows them.
#include "coordinator/membership.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/coordinator/cluster.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::MakeSpec;

class MembershipTest : public ::testing::Test {
 protected:
  // Epoch 1 serves on w0, w1 and w2.
  void SetUp() override {
    for (const char* id : {"w0", "w1", "w2"}) cluster.Join(id);
    SY_ASSERT_OK(cluster.Apply(MakeSpec(3)));
    ASSERT_EQ(cluster.Serving(), 1U);
  }
  Cluster cluster;
};

TEST_F(MembershipTest, RegisteredWorkersAreToldTheirLease) {
  const auto registered = cluster.worker("w0").Got<Registered>();
  ASSERT_EQ(registered.size(), 1U);
  EXPECT_EQ(registered[0].lease_ttl, seconds(2));
}

TEST(TracingSettingsTest, GoToWorkersAndToSources) {
  CoordinatorOptions options;
  options.tracing = {.ratio = 0.25, .endpoint = "collector:4317"};
  Cluster cluster(options);
  cluster.Join("w0");
  SY_ASSERT_OK(cluster.Apply(MakeSpec(1)));

  EXPECT_EQ(cluster.worker("w0").Got<Registered>()[0].tracing, options.tracing);
  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, cluster.OpenDecode());
  EXPECT_EQ(grant.tracing, options.tracing);
}

TEST_F(MembershipTest, AStreamThatStaysAwayIsDeathAfterTheGrace) {
  cluster.BreakStream("w1");
  cluster.Advance(milliseconds(290));
  EXPECT_EQ(cluster.Serving(), 1U);
  SY_EXPECT_OK(cluster.OpenDecode());

  cluster.Advance(milliseconds(20));

  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");
}

TEST_F(MembershipTest, AWorkerThatComesBackWithinTheGraceChangesNothing) {
  cluster.BreakStream("w1");
  cluster.Advance(milliseconds(200));
  cluster.Register(cluster.worker("w1"));
  cluster.Advance(seconds(3));

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.worker("w1").Got<Prepare>().size(), 1U);
}

TEST_F(MembershipTest, AnotherLifeOfADisconnectedWorkerReplacesItAtOnce) {
  cluster.Restart("w1");
  cluster.Advance(milliseconds(120));

  EXPECT_EQ(cluster.Serving(), 2U);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  const auto worker = cluster.Deployment().serving->plan.workers[1];
  EXPECT_EQ(worker.incarnation, cluster.worker("w1").incarnation);
}

TEST_F(MembershipTest, AnotherLifeOfALiveWorkerIsRefused) {
  FakeWorker impostor = cluster.worker("w1");
  const StreamId theirs{999};
  impostor.incarnation = Incarnation{7, 7};
  cluster.Step(StreamOpened{theirs});
  std::optional<absl::Status> closed;
  cluster.worker("w1").heartbeats = true;

  Register request{"w1", impostor.incarnation, "w1:1", impostor.capabilities, {}};
  FakeWorker& probe = cluster.Join("probe");
  cluster.BreakStream("probe");
  probe.stream = theirs;  // records how the stream is ended
  cluster.Step(StreamMessage{theirs, request});

  ASSERT_TRUE(probe.closed.has_value());
  EXPECT_THAT(*probe.closed, FailsWith(absl::StatusCode::kAlreadyExists, Reason::kLeaseHeld));
  EXPECT_EQ(cluster.Serving(), 1U);
}

TEST_F(MembershipTest, AReplacedLifeNeverComesBack) {
  const Incarnation first = cluster.worker("w1").incarnation;
  cluster.Restart("w1");
  cluster.BreakStream("w1");
  cluster.Advance(seconds(1));
  FakeWorker& zombie = cluster.worker("w1");
  zombie.incarnation = first;

  cluster.Register(zombie);

  ASSERT_TRUE(zombie.closed.has_value());
  EXPECT_THAT(*zombie.closed,
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kIncarnation));
}

TEST_F(MembershipTest, OnlyTheNewestStreamOfALifeCounts) {
  FakeWorker& worker = cluster.worker("w1");
  const StreamId old = worker.stream;
  cluster.Register(worker);  // dialled again before the old stream was seen to end

  cluster.Step(StreamMessage{old, Leave{}});
  cluster.Step(StreamClosed{old});
  cluster.Advance(seconds(3));

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
}

TEST_F(MembershipTest, SilenceForALeaseIsDeath) {
  cluster.worker("w1").heartbeats = false;
  cluster.Advance(milliseconds(1900));
  EXPECT_EQ(cluster.Serving(), 1U);

  cluster.Advance(milliseconds(150));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");
  ASSERT_TRUE(cluster.worker("w1").closed.has_value());
  EXPECT_THAT(*cluster.worker("w1").closed,
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST_F(MembershipTest, AStoppedWorkerThatWakesUpJoinsAgainAsItWas) {
  FakeWorker& worker = cluster.worker("w1");
  worker.heartbeats = false;
  cluster.Advance(seconds(3));
  ASSERT_EQ(cluster.ServingWorkers(), "w0 w2");

  worker.heartbeats = true;
  cluster.Register(worker);
  cluster.Advance(milliseconds(200));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  EXPECT_EQ(worker.resident.size(), 1U) << "the epoch it slept with was retired";
}

TEST_F(MembershipTest, ItsOwnStallIsNotTheWorkersDeath) {
  cluster.now += seconds(30);  // the coordinator was stopped; heartbeats wait in the sockets
  cluster.Step(Tick{});
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
}

TEST_F(MembershipTest, DeathsGoOntoTheRestIfMemoryAllowsElseUnavailable) {
  Cluster tight;  // 6144 bytes of weights
  for (const char* id : {"a", "b", "c"}) tight.Join(id, 3200);
  SY_ASSERT_OK(tight.Apply(MakeSpec(3)));
  ASSERT_EQ(tight.Serving(), 1U);

  tight.BreakStream("a");
  tight.Advance(milliseconds(400));
  EXPECT_EQ(tight.ServingWorkers(), "b c");
  EXPECT_EQ(tight.Serving(), 2U);

  tight.BreakStream("b");
  tight.Advance(milliseconds(400));
  EXPECT_EQ(tight.Deployment().state, DeploymentState::kUnavailable);
  EXPECT_THAT(tight.OpenDecode(), FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_TRUE(tight.worker("c").Got<Prepare>().back().plan.workers.size() > 1) << "never partial";

  tight.Join("d", 3200);
  tight.Advance(milliseconds(400));
  EXPECT_EQ(tight.ServingWorkers(), "c d");
}

TEST_F(MembershipTest, WhenAllAreGoneItWaitsForMinWorkersAgain) {
  for (const char* id : {"w0", "w1", "w2"}) cluster.BreakStream(id);
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.Serving(), 0U);
  for (const char* id : {"w0", "w1"}) cluster.worker(id).resident.clear();

  cluster.Restart("w0");
  cluster.Restart("w1");
  cluster.Advance(seconds(5));
  EXPECT_EQ(cluster.Serving(), 0U);

  cluster.Restart("w2");
  cluster.Advance(milliseconds(10));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
}

TEST_F(MembershipTest, LeaveMovesTheExpertsFirst) {
  FakeWorker& worker = cluster.worker("w1");
  cluster.worker("w0").prepares = Answers::kNothing;
  cluster.Say(worker, Leave{});
  cluster.Advance(milliseconds(200));
  EXPECT_TRUE(worker.Got<Goodbye>().empty());
  EXPECT_EQ(cluster.Serving(), 1U) << "it serves on while the others prepare";
  const Prepare prepare = cluster.worker("w0").Got<Prepare>().back();
  EXPECT_EQ(prepare.plan.workers.size(), 2U);

  cluster.Say(cluster.worker("w0"),
              PrepareAck{"demo", prepare.plan.epoch, prepare.nonce, prepare.hash});

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");
  EXPECT_EQ(worker.Got<Retire>().size(), 1U);
  EXPECT_EQ(worker.Got<Goodbye>().size(), 1U);
  cluster.BreakStream("w1");
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.Serving(), 2U);
}

TEST_F(MembershipTest, WhenAllLeaveNobodyWaits) {
  for (const char* id : {"w0", "w1", "w2"}) cluster.Say(cluster.worker(id), Leave{});
  for (const char* id : {"w0", "w1", "w2"}) {
    EXPECT_EQ(cluster.worker(id).Got<Goodbye>().size(), 1U) << id;
  }
}

// Nobody else can do what it does, and waiting would not change that.
TEST_F(MembershipTest, AWorkerWhoseSuccessorsDoNotSuitMayLeave) {
  Cluster pair;
  FakeWorker& worker = pair.Join("w0");
  SY_ASSERT_OK(pair.Apply(MakeSpec(1)));
  FakeWorker& odd = pair.Join("w1");
  odd.capabilities.schemes.clear();
  pair.BreakStream("w1");
  pair.Register(odd);
  ASSERT_EQ(pair.ServingWorkers(), "w0");

  pair.Say(worker, Leave{});
  pair.Advance(seconds(1));

  EXPECT_EQ(worker.Got<Goodbye>().size(), 1U);
}

TEST_F(MembershipTest, AMemberThatRegistersTwiceOnOneStreamLosesTheStreamAndMayComeBack) {
  FakeWorker& worker = cluster.worker("w1");
  const StreamId stream = worker.stream;
  cluster.Say(worker, Register{worker.id, worker.incarnation, "w1:1", worker.capabilities, {}});
  ASSERT_TRUE(worker.closed.has_value());
  EXPECT_THAT(*worker.closed, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  cluster.Step(StreamClosed{stream});

  cluster.Advance(milliseconds(200));
  cluster.Register(worker);
  cluster.Advance(seconds(3));
  EXPECT_EQ(cluster.Serving(), 1U);

  cluster.Say(worker, Register{worker.id, worker.incarnation, "w1:1", worker.capabilities, {}});
  worker.stream = {};
  cluster.Advance(milliseconds(400));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2") << "after the grace, not after the lease";
}

TEST_F(MembershipTest, EpochsOfUnknownDeploymentsAreRetiredAfterAWhile) {
  CoordinatorOptions options;
  options.unclaimed_kept = seconds(30);
  Cluster other(options);
  FakeWorker& worker = other.Join("w0");
  other.BreakStream("w0");
  worker.resident[{"gone", Epoch{7}}] = {"gone", Epoch{7}, Sha256("a plan"), true};
  other.Register(worker);

  other.Advance(seconds(29));
  EXPECT_TRUE(worker.Got<Retire>().empty()) << "it may be applied again";
  other.Advance(seconds(2));

  EXPECT_EQ(worker.Got<Retire>(), (std::vector<Retire>{{"gone", Epoch{7}}}));
  other.Advance(seconds(5));
  EXPECT_EQ(worker.Got<Retire>().size(), 1U) << "sent once";
}

TEST_F(MembershipTest, ANumberThatNoCoordinatorReachesUsesUpNoNumbers) {
  FakeWorker& stranger = cluster.Join("w3");
  cluster.Advance(seconds(1));
  const std::uint64_t before = cluster.Serving();
  cluster.BreakStream("w3");
  const EpochKey far{"demo", Epoch{std::uint64_t{1} << 60}};
  stranger.resident[far] = {"demo", far.epoch, Sha256("a plan"), true};
  cluster.Register(stranger);
  cluster.Advance(seconds(1));
  ASSERT_FALSE(stranger.closed.has_value());

  cluster.Join("w4");
  cluster.Advance(seconds(1));

  EXPECT_GT(cluster.Serving(), before);
  EXPECT_LT(cluster.Serving(), before + 10);
}

TEST_F(MembershipTest, AnIdleWorkerMayLeaveAtOnce) {
  Cluster empty;
  FakeWorker& worker = empty.Join("w9");
  empty.Say(worker, Leave{});
  EXPECT_EQ(worker.Got<Goodbye>().size(), 1U);
}

// Straight at the class: streams that are no workers'.
class MembershipStreamsTest : public ::testing::Test {
 protected:
  std::vector<absl::Status> Closed() {
    std::vector<absl::Status> closed;
    for (const Effect& effect : out.Take()) {
      if (const auto* close = std::get_if<CloseStream>(&effect)) closed.push_back(close->why);
    }
    return closed;
  }
  CoordinatorOptions options{.max_streams = 2};
  Outbox out;
  Membership members{&options, &out};
  TimePoint now{};
};

TEST_F(MembershipStreamsTest, OnlyTheSecretOfALifeTakesItsPlace) {
  Register request{"w9", {1, 1}, "w9:1", testing::MakeCapabilities(), {}};
  request.secret = {5, 5};
  members.OpenStream(StreamId{1}, now);
  SY_ASSERT_OK(members.Join(StreamId{1}, request, now));

  Register stranger = request;
  stranger.secret = {6, 6};
  members.OpenStream(StreamId{2}, now);
  const auto refused = members.Join(StreamId{2}, stranger, now);

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kAlreadyExists, Reason::kLeaseHeld));
  EXPECT_THAT(Closed(),
              ElementsAre(FailsWith(absl::StatusCode::kAlreadyExists, Reason::kLeaseHeld)));
  EXPECT_TRUE(members.members().at("w9").connected());

  // The process itself, which does not end over it: it has opened the new stream.
  members.OpenStream(StreamId{3}, now);
  SY_ASSERT_OK(members.Join(StreamId{3}, request, now));
  EXPECT_THAT(Closed(),
              ElementsAre(FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost)));

  // Nor while it is away.
  members.CloseStream(StreamId{3}, now);
  members.OpenStream(StreamId{4}, now);
  EXPECT_THAT(members.Join(StreamId{4}, stranger, now),
              FailsWith(absl::StatusCode::kAlreadyExists, Reason::kLeaseHeld));
}

TEST_F(MembershipStreamsTest, ARefusalIsALineOfTheLogWhateverWasSent) {
  Register request{std::string(100'000, '\n'), {1, 1}, "w9:1", testing::MakeCapabilities(), {}};
  members.OpenStream(StreamId{1}, now);

  const auto refused = members.Join(StreamId{1}, request, now);

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  for (const Effect& effect : out.Take()) {
    if (const auto* report = std::get_if<Report>(&effect)) {
      EXPECT_LT(report->text.size(), 1000U);
      EXPECT_EQ(report->text.find('\n'), std::string::npos);
    }
  }
}

TEST_F(MembershipStreamsTest, ClosesAStreamOnWhichNobodyRegisters) {
  members.OpenStream(StreamId{1}, now);
  members.Expire(now + seconds(4));
  EXPECT_TRUE(Closed().empty());

  members.Expire(now + seconds(5));

  ASSERT_EQ(Closed().size(), 1U);
  EXPECT_EQ(members.RenewLease(StreamId{1}, now), nullptr);
}

TEST_F(MembershipStreamsTest, ClosesAStreamThatDoesNotBeginWithRegister) {
  members.OpenStream(StreamId{1}, now);

  EXPECT_EQ(members.RenewLease(StreamId{1}, now), nullptr);

  EXPECT_THAT(Closed().at(0),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kBadRequest));
}

TEST_F(MembershipStreamsTest, RefusesMoreStreamsThanTheLimit) {
  for (std::uint64_t s = 1; s <= 3; ++s) members.OpenStream(StreamId{s}, now);

  EXPECT_THAT(Closed().at(0), FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));
  members.CloseStream(StreamId{1}, now);
  members.OpenStream(StreamId{4}, now);
  EXPECT_TRUE(Closed().empty());
}

TEST_F(MembershipStreamsTest, RefusesASecondRegisterOnOneStream) {
  members.OpenStream(StreamId{1}, now);
  const Register request{"w", {1, 2}, "w:1", testing::MakeCapabilities(), {}};
  SY_ASSERT_OK(members.Join(StreamId{1}, request, now));

  EXPECT_FALSE(members.Join(StreamId{1}, request, now).ok());
}

TEST_F(MembershipTest, AWorkerWhoseDataThreadStandsStillLeavesThePlan) {
  cluster.worker("w1").data_thread_turns = false;
  cluster.Advance(milliseconds(9'900));
  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.StateOf("w1"), WorkerState::kLive);

  cluster.Advance(milliseconds(200));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");
  EXPECT_EQ(cluster.StateOf("w1"), WorkerState::kStuck);
  EXPECT_THAT(cluster.Deployment().left_out,
              ElementsAre("w1: stuck: its data thread has made no turn for 10 s"));
}

TEST_F(MembershipTest, AStuckWorkerIsPlannedAgainOnceItsWorkHasMovedForAWhile) {
  cluster.worker("w1").data_thread_turns = false;
  cluster.Advance(seconds(12));
  cluster.worker("w1").data_thread_turns = true;
  cluster.Advance(milliseconds(9'900));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");

  cluster.Advance(milliseconds(300));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
  EXPECT_EQ(cluster.StateOf("w1"), WorkerState::kLive);
}

TEST_F(MembershipTest, AWorkerWhoseBatchDoesNotEndLeavesThePlan) {
  cluster.worker("w1").heartbeat.batch_age = milliseconds(59'999);
  cluster.Advance(seconds(1));
  EXPECT_EQ(cluster.Serving(), 1U);

  cluster.worker("w1").heartbeat.batch_age = seconds(60);
  cluster.Advance(milliseconds(200));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2");
  EXPECT_THAT(cluster.Deployment().left_out,
              ElementsAre("w1: stuck: a batch has been running for 60 s"));
}

TEST_F(MembershipTest, AWorkerThatReturnsIsNotJudgedByItsTimeAway) {
  cluster.worker("w1").data_thread_turns = false;
  cluster.Advance(seconds(9));
  cluster.BreakStream("w1");
  cluster.Advance(milliseconds(200));
  cluster.Register(cluster.worker("w1"));
  cluster.Advance(seconds(9));

  EXPECT_EQ(cluster.Serving(), 1U);
}

TEST_F(MembershipTest, AWorkerThatNeverFreesAnEpochDoesNotHoldUpTheOthersForEver) {
  // It holds epoch 1 for ever; its other epochs come and go.
  cluster.worker("w1").acks_retire = false;
  cluster.Join("w3");
  cluster.Advance(seconds(1));
  ASSERT_EQ(cluster.ServingWorkers(), "w0 w1 w2 w3");
  // A worker is lost: the RETIRE becomes urgent, and is not answered in 5 s and 10 more.
  cluster.worker("w2").heartbeats = false;
  cluster.Advance(seconds(12));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2 w3");

  cluster.Advance(seconds(6));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w3");
  EXPECT_EQ(cluster.StateOf("w1"), WorkerState::kStuck);
  EXPECT_THAT(cluster.Deployment().left_out,
              ElementsAre(HasSubstr("w1: stuck: it has not freed epoch 1 of deployment demo for")));
}

TEST_F(MembershipTest, WithoutALossAnEpochMayTakeAnHourToBeFreed) {
  cluster.worker("w1").acks_retire = false;
  cluster.Join("w3");
  cluster.Advance(seconds(1));
  cluster.Join("w4");
  cluster.Advance(std::chrono::minutes(59), milliseconds(500));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2 w3");
  EXPECT_EQ(cluster.worker("w1").Got<Retire>().size(), 1U);

  cluster.Advance(std::chrono::minutes(2), milliseconds(500));

  // Once more with a time limit; the third is for epoch 2, which it leaves.
  ASSERT_EQ(cluster.worker("w1").Got<Retire>().size(), 3U);
  EXPECT_EQ(cluster.worker("w1").Got<Retire>()[1].within, seconds(5));
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w2 w3 w4");
}

absl::Status NoAnswer() { return absl::UnavailableError("at w3:1 no worker answers"); }

TEST_F(MembershipTest, AWorkerThatCannotBeReachedJoinsNoPlan) {
  cluster.unreachable["w3"] = NoAnswer();
  cluster.Join("w3");
  cluster.Advance(seconds(1));

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.StateOf("w3"), WorkerState::kUnreachable);
  EXPECT_THAT(cluster.Deployment().left_out,
              ElementsAre("w3: unreachable: at w3:1 no worker answers"));
  EXPECT_TRUE(cluster.worker("w3").Got<Prepare>().empty());
}

TEST_F(MembershipTest, AWorkerThatCanBeReachedLaterJoinsThen) {
  cluster.unreachable["w3"] = NoAnswer();
  cluster.Join("w3");
  cluster.Advance(seconds(5));
  ASSERT_EQ(cluster.ServingWorkers(), "w0 w1 w2");

  cluster.unreachable.clear();
  cluster.Advance(milliseconds(2'200));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2 w3");
  EXPECT_EQ(cluster.StateOf("w3"), WorkerState::kLive);
}

TEST_F(MembershipTest, NoPlanUsesAWorkerBeforeItsDialIsAnswered) {
  cluster.hold_dials = true;
  cluster.Join("w3");
  cluster.Advance(seconds(10));
  ASSERT_EQ(cluster.held_dials.size(), 1U);  // and not another one meanwhile
  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");

  const DialWorker dial = cluster.held_dials[0];
  cluster.Step(WorkerDialed{dial.worker, dial.incarnation, dial.endpoint, absl::OkStatus()});
  cluster.Advance(milliseconds(200));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2 w3");
}

TEST_F(MembershipTest, AnAnswerToTheDialOfAFormerProcessDoesNotCount) {
  cluster.hold_dials = true;
  cluster.Join("w3");
  const DialWorker former = cluster.held_dials[0];
  cluster.Restart("w3");
  cluster.Step(WorkerDialed{former.worker, former.incarnation, former.endpoint, absl::OkStatus()});
  cluster.Advance(milliseconds(200));

  EXPECT_EQ(cluster.ServingWorkers(), "w0 w1 w2");
}

std::vector<std::string> WitnessesOf(const DialWorker& dial) {
  std::vector<std::string> ids;
  for (const DialWitness& each : dial.witnesses) ids.push_back(each.worker);
  return ids;
}

TEST_F(MembershipTest, TwoWorkersThatServeAreWitnessesOfADial) {
  cluster.hold_dials = true;
  cluster.Join("a");
  ASSERT_EQ(cluster.held_dials.size(), 1U);

  EXPECT_THAT(WitnessesOf(cluster.held_dials[0]), ElementsAre("w0", "w1"));
  EXPECT_EQ(cluster.held_dials[0].witnesses[0].endpoint, "w0:1");

  // "a" may be what cannot be reached itself, and w0 is not there.
  cluster.BreakStream("w0");
  cluster.Join("b");
  EXPECT_THAT(WitnessesOf(cluster.held_dials.back()), ElementsAre("w1", "w2"));
}

TEST_F(MembershipTest, WhoJoinedAloneIsDialedAgainWhenAnotherComes) {
  Cluster fresh;
  fresh.hold_dials = true;
  fresh.Join("a");
  ASSERT_EQ(fresh.held_dials.size(), 1U);
  EXPECT_THAT(WitnessesOf(fresh.held_dials[0]), ElementsAre());
  const auto answer = [&](const DialWorker& dial, const absl::Status& status) {
    fresh.Step(WorkerDialed{dial.worker, dial.incarnation, dial.endpoint, status});
  };
  answer(fresh.held_dials[0], absl::OkStatus());

  fresh.Join("b");

  ASSERT_EQ(fresh.held_dials.size(), 3U);
  EXPECT_EQ(fresh.held_dials[1].worker, "b");
  EXPECT_THAT(WitnessesOf(fresh.held_dials[1]), ElementsAre("a"));
  EXPECT_EQ(fresh.held_dials[2].worker, "a");
  EXPECT_THAT(WitnessesOf(fresh.held_dials[2]), ElementsAre("b"));
  answer(fresh.held_dials[1], absl::OkStatus());
  answer(fresh.held_dials[2], NoAnswer());
  EXPECT_EQ(fresh.StateOf("a"), WorkerState::kUnreachable);
  EXPECT_EQ(fresh.StateOf("b"), WorkerState::kLive);
  // Once is enough.
  fresh.Join("c");
  EXPECT_EQ(fresh.held_dials.size(), 4U);
}

// By `witness` alone.
absl::Status NoTo(const std::string& witness) {
  return WithMetadata(absl::UnavailableError("no worker answers its peer " + witness), kWitnessKey,
                      witness);
}

void AnswerDial(Cluster& cluster, const DialWorker& dial, const absl::Status& status) {
  cluster.Step(WorkerDialed{dial.worker, dial.incarnation, dial.endpoint, status});
}

// Of two that cannot connect to each other one may be cut off. Nothing would serve without both.
TEST_F(MembershipTest, AWitnessThatIsNotReachedItselfDecidesNothing) {
  Cluster fresh;
  fresh.hold_dials = true;
  fresh.Join("a");
  AnswerDial(fresh, fresh.held_dials[0], absl::OkStatus());
  fresh.Join("b");
  ASSERT_EQ(fresh.held_dials.size(), 3U);

  AnswerDial(fresh, fresh.held_dials[1], NoTo("a"));
  AnswerDial(fresh, fresh.held_dials[2], NoTo("b"));

  EXPECT_EQ(fresh.StateOf("b"), WorkerState::kUnreachable);
  EXPECT_EQ(fresh.StateOf("a"), WorkerState::kLive);
}

TEST_F(MembershipTest, WhoWasTriedByNobodyThatIsReachedIsDialedAgainOnceSomebodyIs) {
  Cluster fresh;
  fresh.hold_dials = true;
  fresh.Join("a");
  fresh.Join("b");
  AnswerDial(fresh, fresh.held_dials[1], NoTo("a"));
  ASSERT_EQ(fresh.held_dials.size(), 2U) << "the dial of a is not answered yet";

  AnswerDial(fresh, fresh.held_dials[0], absl::OkStatus());

  ASSERT_EQ(fresh.held_dials.size(), 3U);
  EXPECT_EQ(fresh.held_dials[2].worker, "b");
  AnswerDial(fresh, fresh.held_dials[2], NoTo("a"));
  EXPECT_EQ(fresh.StateOf("b"), WorkerState::kUnreachable);
  EXPECT_EQ(fresh.StateOf("a"), WorkerState::kLive);
}

// Two that are cut off together and connect to each other keep nobody out for ever.
TEST_F(MembershipTest, WitnessesTakeTurns) {
  Cluster fresh;
  fresh.hold_dials = true;
  for (const char* id : {"a", "b", "c", "d", "e"}) fresh.Join(id);
  const std::set<std::string> cut = {"a", "b"};
  for (int round = 0; round < 10; ++round) {
    for (const DialWorker& dial : std::exchange(fresh.held_dials, {})) {
      const auto connects = [&](const DialWitness& witness) {
        return cut.contains(witness.worker) == cut.contains(dial.worker);
      };
      const bool reached = dial.witnesses.empty() ||
                           std::any_of(dial.witnesses.begin(), dial.witnesses.end(), connects);
      AnswerDial(fresh, dial, reached ? absl::OkStatus() : NoTo(dial.witnesses[0].worker));
    }
    fresh.Advance(seconds(2));
  }

  for (const char* id : {"c", "d", "e"}) EXPECT_EQ(fresh.StateOf(id), WorkerState::kLive) << id;
}

TEST_F(MembershipTest, AWorkerThatServesIsNotDialedAgain) {
  // As behind a firewall that came later: its sources have their connections.
  cluster.unreachable["w1"] = NoAnswer();
  cluster.BreakStream("w1");
  cluster.Register(cluster.worker("w1"));
  cluster.Advance(seconds(5));
  EXPECT_EQ(cluster.Serving(), 1U);

  cluster.StopCoordinator();
  cluster.StartCoordinator();
  for (const char* id : {"w0", "w1", "w2"}) cluster.Register(cluster.worker(id));
  cluster.Advance(seconds(5));

  EXPECT_EQ(cluster.Serving(), 1U);
  EXPECT_EQ(cluster.StateOf("w1"), WorkerState::kLive);
}

TEST_F(MembershipTest, AFirstPlanWaitsForWorkersThatCanBeReached) {
  Cluster fresh;
  fresh.unreachable["w1"] = NoAnswer();
  fresh.Join("w0");
  fresh.Join("w1");
  SY_ASSERT_OK(fresh.Apply(MakeSpec(2)));
  fresh.Advance(seconds(3));
  EXPECT_EQ(fresh.Serving(), 0U);
  EXPECT_THAT(fresh.Deployment().activity, HasSubstr("1 of 2 are connected (w0)"));
  EXPECT_THAT(fresh.Deployment().activity,
              HasSubstr("; w1: unreachable: at w3:1 no worker answers"));

  fresh.unreachable.clear();
  fresh.Advance(seconds(3));

  EXPECT_EQ(fresh.ServingWorkers(), "w0 w1");
}

}  // namespace
}  // namespace switchyard
