#include "worker/agent/agent.h"

#include <chrono>

#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/plan.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::FailsWith;

constexpr Incarnation kMe{11, 12};

class AgentTest : public ::testing::Test {
 protected:
  AgentTest() { Recreate(); }

  void Recreate(Duration leave_alone_timeout = AgentOptions().leave_alone_timeout) {
    AgentOptions options;
    options.leave_alone_timeout = leave_alone_timeout;
    options.worker_id = "w1";
    options.incarnation = kMe;
    options.endpoint = "host:1";
    agent.emplace(options, &rng, now);
  }
  // Serves, and is asked to leave, now, while the coordinator is away, for which it may wait 40 s.
  TimePoint LeaveWithoutTheCoordinator() {
    Recreate(std::chrono::seconds(40));
    Connect();
    Serve(1);
    Disconnect();
    Step(LeaveRequested{});
    return now;
  }
  // One step; what it wants done goes to `effects`.
  void Step(const AgentEvent& event) {
    effects = agent->Step(event, now);
    for (const AgentEffect& effect : effects) {
      if (const auto* dial = std::get_if<DialChannel>(&effect)) current = dial->dial;
    }
  }
  void Receive(CoordinatorMessage message) { Step(ChannelMessage{current, std::move(message)}); }
  void Connect() {
    now = std::max(now, agent->NextDeadline());
    Step(AgentTick{});
    Step(ChannelUp{current});
    Receive(Registered{seconds(2)});
  }
  void Disconnect() {
    Step(ChannelDown{current,
                     MakeError(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost, "reset")});
  }
  template <typename T>
  std::vector<T> Effects() const {
    std::vector<T> found;
    for (const AgentEffect& effect : effects) {
      if (const T* e = std::get_if<T>(&effect)) found.push_back(*e);
    }
    return found;
  }
  template <typename T>
  std::vector<T> Sent() const {
    std::vector<T> found;
    for (const auto& send : Effects<SendToCoordinator>()) {
      if (const T* m = std::get_if<T>(&send.message)) found.push_back(*m);
    }
    return found;
  }
  static Prepare PrepareOf(std::uint64_t epoch, const std::string& deployment = "demo") {
    Prepare prepare;
    prepare.nonce = 100 + epoch;
    Plan& plan = prepare.plan;
    plan.deployment = deployment;
    plan.model = "m";
    plan.epoch = Epoch{epoch};
    plan.shape = {.hidden = 8, .intermediate = 4, .experts = 2, .top_k = 1};
    plan.workers = {{"w0", {1, 1}, "host:0", DeviceKind::kCpu, "scalar"},
                    {"w1", kMe, "host:1", DeviceKind::kCpu, "scalar"}};
    plan.layers = {
        {LayerId{0},
         {{ExpertId{0}, WorkerOrdinal{0}, SlotId{0}}, {ExpertId{1}, WorkerOrdinal{1}, SlotId{0}}}}};
    plan.configs.resize(1);
    prepare.hash = HashOf(plan);
    prepare.grant_keys = {KeyOf(0), KeyOf(epoch)};
    return prepare;
  }
  static GrantKey KeyOf(std::uint64_t epoch) {
    SeededRng rng(epoch);
    return GrantKey::Random(&rng);
  }
  static EpochKey Key(std::uint64_t epoch) { return {"demo", Epoch{epoch}}; }
  // Brings `epoch` to committed.
  void Serve(std::uint64_t epoch) {
    const Prepare prepare = PrepareOf(epoch);
    Receive(prepare);
    Step(EpochStaged{Key(epoch), absl::OkStatus()});
    Receive(Commit{"demo", Epoch{epoch}, prepare.hash});
  }

  SeededRng rng{5};
  TimePoint now{};
  std::optional<Agent> agent;
  std::vector<AgentEffect> effects;
  DialId current;
};

TEST_F(AgentTest, DialsAtOnceAndRegistersWhenUp) {
  Step(AgentTick{});
  ASSERT_EQ(Effects<DialChannel>().size(), 1U);
  EXPECT_FALSE(agent->registered());

  Step(ChannelUp{current});

  ASSERT_EQ(Sent<Register>().size(), 1U);
  EXPECT_EQ(Sent<Register>()[0].worker_id, "w1");
  EXPECT_EQ(Sent<Register>()[0].incarnation, kMe);
  EXPECT_EQ(Sent<Register>()[0].endpoint, "host:1");
  EXPECT_TRUE(Sent<Register>()[0].resident.empty());
  Receive(Registered{seconds(2)});
  EXPECT_TRUE(agent->registered());
}

TEST_F(AgentTest, SaysHowToTraceWhenThatChanges) {
  Connect();
  EXPECT_TRUE(Effects<UseTracing>().empty()) << "it is off, and was";
  const TraceSettings settings{.ratio = 0.5, .endpoint = "collector:4317"};

  Receive(Registered{seconds(2), settings});
  ASSERT_EQ(Effects<UseTracing>().size(), 1U);
  EXPECT_EQ(Effects<UseTracing>()[0].settings, settings);
  Receive(Registered{seconds(2), settings});
  EXPECT_TRUE(Effects<UseTracing>().empty());
  // A coordinator that was restarted without it.
  Disconnect();
  Connect();
  ASSERT_EQ(Effects<UseTracing>().size(), 1U);
  EXPECT_EQ(Effects<UseTracing>()[0].settings, TraceSettings());
}

TEST_F(AgentTest, HeartbeatsSayWhatIsStaged) {
  Connect();
  now = agent->NextDeadline();
  const Heartbeat heartbeat{.progress = 1, .staging = {{"demo", Epoch{2}, 1, 4, 100, 400}}};

  Step(AgentTick{heartbeat});

  ASSERT_EQ(Sent<Heartbeat>().size(), 1U);
  EXPECT_EQ(Sent<Heartbeat>()[0], heartbeat);
}

TEST_F(AgentTest, LogsEveryTenSecondsHowFarItsLoadingIs) {
  Connect();
  std::vector<std::string> lines;
  for (int second = 0; second < 25; ++second) {
    now += seconds(1);
    Step(AgentTick{{.staging = {{"demo", Epoch{2}, second, 40, second << 20, 40 << 20}}}});
    for (const AgentReport& report : Effects<AgentReport>()) lines.push_back(report.text);
  }
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], "deployment demo: staging epoch 2: 10 of 40 experts, 10.0 of 40.0 MiB");

  now += seconds(30);
  Step(AgentTick{{.staging = {{"demo", Epoch{2}, 40, 40, 40 << 20, 40 << 20}}}});
  EXPECT_TRUE(Effects<AgentReport>().empty()) << "all is loaded";
}

TEST_F(AgentTest, HeartbeatsFourTimesInALeaseWithItsProgress) {
  Connect();
  for (int i = 0; i < 3; ++i) {
    const TimePoint due = agent->NextDeadline();
    EXPECT_EQ(due - now, milliseconds(500));
    now = due;
    Step(AgentTick{{.progress = 77, .batch_age = milliseconds(5)}});
    ASSERT_EQ(Sent<Heartbeat>().size(), 1U);
    EXPECT_EQ(Sent<Heartbeat>()[0], (Heartbeat{.progress = 77, .batch_age = milliseconds(5)}));
  }
}

TEST_F(AgentTest, RedialsWithGrowingJitteredDelays) {
  Step(AgentTick{});
  Duration low = milliseconds(50);
  for (int i = 0; i < 12; ++i) {
    const TimePoint before = now;
    Disconnect();
    const Duration delay = agent->NextDeadline() - before;
    EXPECT_GE(delay, low) << i;
    EXPECT_LE(delay, 2 * low) << i;
    low = std::min<Duration>(low * 2, milliseconds(2500));
    now = agent->NextDeadline();
    Step(AgentTick{});
    ASSERT_EQ(Effects<DialChannel>().size(), 1U);
  }
}

TEST_F(AgentTest, ComesBackQuicklyAfterAStreamThatWorked) {
  for (int round = 0; round < 20; ++round) {
    Connect();
    Disconnect();
    EXPECT_LE(agent->NextDeadline() - now, milliseconds(100));
  }
}

TEST_F(AgentTest, GivesUpAStreamWithoutRegistered) {
  Step(AgentTick{});
  Step(ChannelUp{current});
  EXPECT_EQ(agent->NextDeadline() - now, seconds(5));
  now = agent->NextDeadline();

  Step(AgentTick{});

  ASSERT_EQ(Effects<HangUpChannel>().size(), 1U);
  EXPECT_EQ(Effects<HangUpChannel>()[0].dial, current);
  now = agent->NextDeadline();
  Step(AgentTick{});
  EXPECT_EQ(Effects<DialChannel>().size(), 1U);
}

TEST_F(AgentTest, IgnoresWhatComesFromAnOlderStream) {
  Connect();
  const DialId old = current;
  Disconnect();
  Connect();

  Step(ChannelMessage{old, PrepareOf(1)});
  EXPECT_TRUE(effects.empty());
  Step(ChannelDown{old, absl::UnavailableError("late")});
  EXPECT_TRUE(agent->registered());
}

TEST_F(AgentTest, StagesThenAcknowledges) {
  Connect();
  const Prepare prepare = PrepareOf(1);
  Receive(prepare);
  ASSERT_EQ(Effects<StageEpoch>().size(), 1U);
  EXPECT_EQ(Effects<StageEpoch>()[0].prepare, prepare);
  EXPECT_TRUE(Sent<PrepareAck>().empty());
  EXPECT_TRUE(agent->Resident().empty());

  Step(EpochStaged{Key(1), absl::OkStatus()});

  EXPECT_EQ(Sent<PrepareAck>(),
            (std::vector<PrepareAck>{{"demo", Epoch{1}, prepare.nonce, prepare.hash}}));
  EXPECT_EQ(agent->Resident(),
            (std::vector<ResidentEpoch>{{"demo", Epoch{1}, prepare.hash, false}}));
}

TEST_F(AgentTest, RefusesAPlanThatIsNotTheOneOfItsHash) {
  Connect();
  Prepare damaged = PrepareOf(1);
  damaged.plan.layers[0].experts[0].expert = ExpertId{1};

  Receive(damaged);

  ASSERT_EQ(Sent<PrepareNack>().size(), 1U);
  EXPECT_EQ(Sent<PrepareNack>()[0].nonce, damaged.nonce);
  EXPECT_THAT(Sent<PrepareNack>()[0].error,
              FailsWith(absl::StatusCode::kDataLoss, Reason::kBadConfig));
  EXPECT_TRUE(Effects<StageEpoch>().empty());
}

TEST_F(AgentTest, RefusesAPlanForAnotherLifeOrWithoutIt) {
  Connect();
  for (const bool other_life : {true, false}) {
    Prepare prepare = PrepareOf(1);
    if (other_life) {
      prepare.plan.workers[1].incarnation = {9, 9};
    } else {
      prepare.plan.workers[1].id = "w7";
    }
    prepare.hash = HashOf(prepare.plan);
    Receive(prepare);
    ASSERT_EQ(Sent<PrepareNack>().size(), 1U);
    EXPECT_THAT(Sent<PrepareNack>()[0].error,
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kIncarnation));
  }
}

TEST_F(AgentTest, RefusesAnInvalidPlan) {
  Connect();
  Prepare prepare = PrepareOf(1);
  prepare.plan.layers[0].experts.pop_back();
  prepare.hash = HashOf(prepare.plan);

  Receive(prepare);

  EXPECT_THAT(Sent<PrepareNack>().at(0).error,
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadConfig));
}

TEST_F(AgentTest, PassesAStagingErrorOnAndRepeatsIt) {
  Connect();
  Receive(PrepareOf(1));
  const absl::Status error =
      MakeError(absl::StatusCode::kDataLoss, Reason::kWeightHash, "tensor t");

  Step(EpochStaged{Key(1), error});
  EXPECT_EQ(Sent<PrepareNack>().at(0).error, error);
  EXPECT_TRUE(agent->Resident().empty());

  Receive(PrepareOf(1));
  EXPECT_EQ(Sent<PrepareNack>().at(0).error, error);
  EXPECT_TRUE(Effects<StageEpoch>().empty()) << "it is not tried twice under one number";
  Receive(Abort{"demo", Epoch{1}});
  EXPECT_TRUE(Effects<DropEpoch>().empty()) << "there is nothing left to drop";
}

TEST_F(AgentTest, ActivatesTheEpochThatCommitNames) {
  Connect();
  const Prepare prepare = PrepareOf(1);
  Receive(prepare);
  Step(EpochStaged{Key(1), absl::OkStatus()});

  Receive(Commit{"demo", Epoch{1}, prepare.hash});

  ASSERT_EQ(Effects<ActivateEpoch>().size(), 1U);
  EXPECT_EQ(Sent<CommitAck>(), (std::vector<CommitAck>{{"demo", Epoch{1}, prepare.hash}}));
  EXPECT_TRUE(agent->Resident().at(0).committed);
  Receive(Commit{"demo", Epoch{1}, prepare.hash});
  EXPECT_TRUE(Effects<ActivateEpoch>().empty()) << "once";
  EXPECT_EQ(Sent<CommitAck>().size(), 1U) << "and acknowledged again";
}

TEST_F(AgentTest, NacksACommitOfWhatIsNotPreparedUnderThatHash) {
  Connect();
  const auto stale = FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch);
  Prepare prepare = PrepareOf(1);
  Receive(Commit{"demo", Epoch{1}, prepare.hash});
  EXPECT_THAT(Sent<CommitNack>().at(0).error, stale);

  Receive(prepare);
  Receive(Commit{"demo", Epoch{1}, prepare.hash});
  EXPECT_THAT(Sent<CommitNack>().at(0).error, stale) << "still staging";

  Step(EpochStaged{Key(1), absl::OkStatus()});
  PlanHash other = prepare.hash;
  other.bytes[31] ^= 1;
  Receive(Commit{"demo", Epoch{1}, other});
  EXPECT_THAT(Sent<CommitNack>().at(0).error, stale);
  EXPECT_TRUE(Effects<ActivateEpoch>().empty());
}

TEST_F(AgentTest, AbortDropsWhatIsStagedOrBeingStaged) {
  Connect();
  Receive(PrepareOf(1));
  Receive(Abort{"demo", Epoch{1}});
  ASSERT_EQ(Effects<DropEpoch>().size(), 1U);
  Step(EpochStaged{Key(1), absl::OkStatus()});
  EXPECT_TRUE(effects.empty()) << "the answer comes too late";

  Receive(PrepareOf(2));
  Step(EpochStaged{Key(2), absl::OkStatus()});
  Receive(Abort{"demo", Epoch{2}});
  EXPECT_EQ(Effects<DropEpoch>().size(), 1U);
  EXPECT_TRUE(agent->Resident().empty());
}

TEST_F(AgentTest, AbortedNumbersAreNeverTakenAgain) {
  Connect();
  Receive(PrepareOf(3));
  Receive(Abort{"demo", Epoch{3}});

  Receive(PrepareOf(3));
  EXPECT_THAT(Sent<PrepareNack>().at(0).error,
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  Receive(PrepareOf(2));
  EXPECT_EQ(Sent<PrepareNack>().size(), 1U);
  Receive(PrepareOf(4));
  EXPECT_EQ(Effects<StageEpoch>().size(), 1U);
  Receive(PrepareOf(1, "other"));
  EXPECT_EQ(Effects<StageEpoch>().size(), 1U) << "each deployment counts for itself";
}

TEST_F(AgentTest, AbortOfACommittedEpochIsIgnored) {
  Connect();
  Serve(1);

  Receive(Abort{"demo", Epoch{1}});

  EXPECT_TRUE(Effects<DropEpoch>().empty());
  EXPECT_EQ(agent->Resident().size(), 1U);
}

TEST_F(AgentTest, HoldsAtMostTwoEpochsOfADeployment) {
  Connect();
  Serve(1);
  Serve(2);

  Receive(PrepareOf(3));
  EXPECT_THAT(Sent<PrepareNack>().at(0).error,
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory));
  Receive(PrepareOf(1, "other"));
  EXPECT_EQ(Effects<StageEpoch>().size(), 1U);

  Receive(Retire{"demo", Epoch{1}});
  Step(EpochUnbound{Key(1)});
  Receive(PrepareOf(3));
  EXPECT_EQ(Effects<StageEpoch>().size(), 1U) << "a refused number was not spent";
}

TEST_F(AgentTest, AcknowledgesRetireWhenTheLastBindingIsGone) {
  Connect();
  Serve(1);
  Receive(Retire{"demo", Epoch{1}});
  ASSERT_EQ(Effects<RetireEpoch>().size(), 1U);
  EXPECT_TRUE(Sent<RetireAck>().empty());
  EXPECT_TRUE(agent->Resident().at(0).committed) << "it is still held";
  Receive(Retire{"demo", Epoch{1}});
  EXPECT_TRUE(effects.empty());

  Step(EpochUnbound{Key(1)});

  EXPECT_EQ(Effects<DropEpoch>().size(), 1U);
  EXPECT_EQ(Sent<RetireAck>(), (std::vector<RetireAck>{{"demo", Epoch{1}}}));
  EXPECT_TRUE(agent->Resident().empty());
}

TEST_F(AgentTest, AnUrgentRetireShortensTheFirstOrFollowsIt) {
  Connect();
  Serve(1);
  Serve(2);
  Receive(Retire{"demo", Epoch{1}});
  EXPECT_TRUE(Effects<ShortenRetire>().empty());

  Receive(Retire{"demo", Epoch{1}, std::chrono::seconds(5)});

  EXPECT_TRUE(Effects<RetireEpoch>().empty());
  ASSERT_EQ(Effects<ShortenRetire>().size(), 1U);
  EXPECT_EQ(Effects<ShortenRetire>()[0].key, Key(1));
  EXPECT_EQ(Effects<ShortenRetire>()[0].within, std::chrono::seconds(5));

  Receive(Retire{"demo", Epoch{2}, std::chrono::seconds(5)});
  EXPECT_EQ(Effects<RetireEpoch>().size(), 1U);
  EXPECT_EQ(Effects<ShortenRetire>().size(), 1U);
}

TEST_F(AgentTest, RetireOfWhatIsNotHeldIsAcknowledgedAtOnce) {
  Connect();
  Receive(Retire{"demo", Epoch{8}});
  EXPECT_EQ(Sent<RetireAck>().size(), 1U);

  Receive(PrepareOf(9));
  Receive(Retire{"demo", Epoch{9}});
  EXPECT_EQ(Effects<DropEpoch>().size(), 1U);
  EXPECT_EQ(Sent<RetireAck>().size(), 1U);
}

TEST_F(AgentTest, ServesOnWithoutACoordinatorAndSaysWhatItHoldsOnReturn) {
  Connect();
  Serve(1);
  Receive(PrepareOf(2));
  Disconnect();
  Step(EpochStaged{Key(2), absl::OkStatus()});
  EXPECT_TRUE(effects.empty()) << "nobody to tell";
  now += std::chrono::hours(5);
  Step(AgentTick{});

  Step(ChannelUp{current});

  ASSERT_EQ(Sent<Register>().size(), 1U);
  EXPECT_EQ(Sent<Register>()[0].resident,
            (std::vector<ResidentEpoch>{{"demo", Epoch{1}, PrepareOf(1).hash, true},
                                        {"demo", Epoch{2}, PrepareOf(2).hash, false}}));
}

// Those of the sessions that may be bound here, for a coordinator that has lost its store.
TEST_F(AgentTest, RegistersWithTheKeysOfTheEpochsThatItServes) {
  Connect();
  Serve(1);
  Serve(2);
  Receive(Retire{"demo", Epoch{1}});
  Receive(PrepareOf(7, "other"));
  Step(EpochStaged{{"other", Epoch{7}}, absl::OkStatus()});
  Disconnect();
  now += std::chrono::hours(5);
  Step(AgentTick{});

  Step(ChannelUp{current});

  ASSERT_EQ(Sent<Register>().size(), 1U);
  EXPECT_EQ(Sent<Register>()[0].grant_keys,
            (std::vector<DeploymentKeys>{{"demo", {KeyOf(0), KeyOf(2), KeyOf(1)}}}))
      << "the newest epoch's first, and none of what is only prepared";
}

TEST_F(AgentTest, SaysAgainWhatWasStagedWhileItRegistered) {
  Connect();
  Receive(PrepareOf(1));
  Disconnect();
  now = agent->NextDeadline();
  Step(AgentTick{});
  Step(ChannelUp{current});
  ASSERT_TRUE(Sent<Register>().at(0).resident.empty());
  Step(EpochStaged{Key(1), absl::OkStatus()});
  ASSERT_TRUE(effects.empty()) << "it is not registered yet";

  Receive(Registered{seconds(2)});

  EXPECT_EQ(Sent<PrepareAck>(),
            (std::vector<PrepareAck>{{"demo", Epoch{1}, PrepareOf(1).nonce, PrepareOf(1).hash}}));
}

TEST_F(AgentTest, ARepeatedPrepareIsAnsweredUnderItsOwnNonce) {
  Connect();
  Prepare prepare = PrepareOf(1);
  Receive(prepare);
  Disconnect();
  Connect();
  prepare.nonce = 999;
  Receive(prepare);
  EXPECT_TRUE(Effects<StageEpoch>().empty()) << "it is being staged already";

  Step(EpochStaged{Key(1), absl::OkStatus()});
  EXPECT_EQ(Sent<PrepareAck>().at(0).nonce, 999U);

  prepare.nonce = 1000;
  Receive(prepare);
  EXPECT_EQ(Sent<PrepareAck>().at(0).nonce, 1000U);
}

TEST_F(AgentTest, AnotherPlanUnderAKnownNumberIsRefused) {
  Connect();
  Receive(PrepareOf(1));
  Prepare other = PrepareOf(1);
  other.plan.model = "other";
  other.hash = HashOf(other.plan);

  Receive(other);

  EXPECT_THAT(Sent<PrepareNack>().at(0).error,
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
}

TEST_F(AgentTest, LeavesWithGoodbye) {
  Connect();
  Step(LeaveRequested{});
  EXPECT_EQ(Sent<Leave>().size(), 1U);
  Step(LeaveRequested{});
  EXPECT_TRUE(effects.empty());

  Receive(Goodbye{});

  ASSERT_EQ(Effects<AgentFinished>().size(), 1U);
  SY_EXPECT_OK(Effects<AgentFinished>()[0].why);
  EXPECT_EQ(Effects<HangUpChannel>().size(), 1U);
  EXPECT_TRUE(agent->finished());
  Step(AgentTick{});
  EXPECT_TRUE(effects.empty());
}

TEST_F(AgentTest, SaysLeaveAgainOnANewStream) {
  Connect();
  Serve(1);
  Step(LeaveRequested{});
  Disconnect();
  now = agent->NextDeadline();
  Step(AgentTick{});
  Step(ChannelUp{current});

  Receive(Registered{seconds(2)});

  EXPECT_EQ(Sent<Leave>().size(), 1U);
}

TEST_F(AgentTest, LeavesByItselfWhenNobodySaysGoodbye) {
  Connect();
  const TimePoint asked = now;
  Step(LeaveRequested{});
  while (!agent->finished() && now < asked + seconds(60)) {
    now = agent->NextDeadline();
    Step(AgentTick{});
  }
  EXPECT_EQ(now - asked, seconds(25));
  SY_EXPECT_OK(Effects<AgentFinished>().at(0).why);
}

TEST_F(AgentTest, LeavesAtOnceWithoutACoordinatorWhereNothingIsInUse) {
  Connect();
  Disconnect();
  now += seconds(30);
  Step(LeaveRequested{});
  EXPECT_LE(agent->NextDeadline(), now);
  Step(AgentTick{});
  EXPECT_TRUE(agent->finished());
}

// A coordinator that restarts may take seconds, in which steps go on and delays between dials grow.
TEST_F(AgentTest, GivesACoordinatorThatIsAwayTheTimeToComeBack) {
  Connect();
  Serve(1);
  Disconnect();
  for (int i = 0; i < 10; ++i) {
    now = agent->NextDeadline();
    Step(AgentTick{});
    Disconnect();
  }
  const TimePoint asked = now;
  Step(LeaveRequested{});
  EXPECT_LE(agent->NextDeadline(), now) << "dials at once, whatever delay it had come to";
  Step(AgentTick{});
  ASSERT_EQ(Effects<DialChannel>().size(), 1U);
  while (!agent->finished() && now < asked + seconds(60)) {
    if (!Effects<DialChannel>().empty()) Disconnect();
    now = std::max(now + milliseconds(1), agent->NextDeadline());
    Step(AgentTick{});
  }
  EXPECT_GE(now - asked, seconds(10));
  EXPECT_LE(now - asked, milliseconds(10'100));
}

// Steps do not need the coordinator; whoever makes them goes on until the worker ends.
TEST_F(AgentTest, WaitsForACoordinatorThatIsAwayForAsLongAsSourcesUseIt) {
  for (const bool until_the_end : {true, false}) {
    const TimePoint asked = LeaveWithoutTheCoordinator();
    const auto in_use = [&] { return until_the_end || now < asked + seconds(15); };
    Step(AgentTick{.in_use = true});
    while (!agent->finished() && now < asked + seconds(90)) {
      if (!Effects<DialChannel>().empty()) Disconnect();
      now = std::max(now + milliseconds(1), agent->NextDeadline());
      Step(AgentTick{.in_use = in_use()});
    }
    if (until_the_end) {
      EXPECT_EQ(now - asked, seconds(40));
    } else {
      EXPECT_GE(now - asked, seconds(15));
      EXPECT_LE(now - asked, seconds(20)) << "a dial's delay later";
    }
  }
}

// It then has the whole time again for the experts, up to the sum of both.
TEST_F(AgentTest, ACoordinatorThatHasComeBackHasTheTimeToMoveTheExperts) {
  for (const int away : {30, 3}) {
    const TimePoint asked = LeaveWithoutTheCoordinator();
    Step(AgentTick{.in_use = true});
    Disconnect();
    now = asked + seconds(away);
    Step(AgentTick{.in_use = true});
    Step(ChannelUp{current});
    Receive(Registered{seconds(2)});
    const TimePoint back = now;
    while (!agent->finished() && now < asked + seconds(90)) {
      now = agent->NextDeadline();
      Step(AgentTick{.in_use = true});
    }
    EXPECT_EQ(now - back, seconds(25));
  }
  // Whoever comes and goes cannot hold it for longer.
  Recreate(seconds(40));
  Connect();
  Serve(1);
  const TimePoint asked = now;
  Step(LeaveRequested{});
  while (!agent->finished() && now < asked + seconds(200)) {
    Disconnect();
    now += seconds(6);
    Step(AgentTick{.in_use = true});
    if (agent->finished()) break;
    Step(ChannelUp{current});
    Receive(Registered{seconds(2)});
    now += seconds(1);
    Step(AgentTick{.in_use = true});
  }
  EXPECT_GE(now - asked, seconds(65));
  EXPECT_LE(now - asked, seconds(71));
}

TEST_F(AgentTest, IsPlannedOutByACoordinatorThatComesBack) {
  Connect();
  Serve(1);
  Disconnect();
  Step(LeaveRequested{});
  now += seconds(8);
  Step(AgentTick{});
  ASSERT_FALSE(agent->finished());
  Step(ChannelUp{current});
  Receive(Registered{seconds(2)});
  EXPECT_EQ(Sent<Leave>().size(), 1U);
  now += seconds(5);
  Step(AgentTick{});
  EXPECT_FALSE(agent->finished());
  Receive(Goodbye{});
  EXPECT_TRUE(agent->finished());
}

TEST_F(AgentTest, EndsWhenItsIdWasTakenOverOrItsConfigurationCannotBe) {
  for (const auto& why :
       {MakeError(absl::StatusCode::kFailedPrecondition, Reason::kIncarnation, "x"),
        MakeError(absl::StatusCode::kInvalidArgument, Reason::kBadRequest, "x")}) {
    Recreate();
    Connect();
    Step(ChannelDown{current, why});
    ASSERT_EQ(Effects<AgentFinished>().size(), 1U);
    EXPECT_EQ(Effects<AgentFinished>()[0].why.code(), why.code());
  }
}

TEST_F(AgentTest, TriesAgainWhileAnotherLifeHoldsItsLease) {
  Connect();
  Step(ChannelDown{current,
                   MakeError(absl::StatusCode::kAlreadyExists, Reason::kLeaseHeld, "alive")});
  EXPECT_FALSE(agent->finished());
  now = agent->NextDeadline();
  Step(AgentTick{});
  EXPECT_EQ(Effects<DialChannel>().size(), 1U);
}

}  // namespace
}  // namespace switchyard
