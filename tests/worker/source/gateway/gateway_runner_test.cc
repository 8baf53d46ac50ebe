// Steps through a gateway that the test answers for, in a Source without a transport: the Source
// sleeps on its doorbell, and the gateway's answers wake it.
#include "worker/source/gateway/gateway_runner.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "core/base/status_macros.h"
#include "core/rng.h"
#include "tests/testing/scripted_gateway.h"
#include "tests/testing/status_matchers.h"
#include "worker/source/registry/runner_registry.h"
#include "worker/source/source.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using testing::FailsWith;

constexpr std::int32_t kHidden = testing::ScriptedGateway::kHidden;

class GatewayRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SeededRng rng(5);
    for (Bf16& value : x_) value = FloatToBf16(static_cast<float>(rng.Uniform() - 0.5));
    for (std::size_t i = 0; i < ids_.size(); ++i) ids_[i] = static_cast<std::int32_t>(i % 2);
    y_.assign(y_.size(), std::numeric_limits<float>::quiet_NaN());
  }
  absl::Status Open() {
    SourceOptions options;
    options.make_runner = MakeRunnerFactory({.steps = &gateway_, .gateways = {"g0"}});
    options.clock = &clock_;
    source_ = Source::Create(std::move(options));
    SY_ASSIGN_OR_RETURN(session_, source_->Open({}, seconds(2)));
    return absl::OkStatus();
  }
  auto Submit(const StepRequest& request) { return source_->Submit(session_, request); }
  absl::Status Wait(const StepTicket& ticket) { return source_->Wait(session_, ticket); }
  // Repeats what is refused between two gateways.
  absl::StatusOr<StepTicket> SubmitUntilTaken() {
    const TimePoint end = clock_.Now() + seconds(20);
    absl::StatusOr<StepTicket> ticket = Submit(Request());
    while (absl::IsUnavailable(ticket.status()) && clock_.Now() < end) {
      std::this_thread::yield();
      ticket = Submit(Request());
    }
    return ticket;
  }
  GatewayRunnerOptions TwoGateways() {
    return {.steps = &gateway_, .gateways = {"g0", "g1"}, .request = {}, .wake = [] {}};
  }
  StepRequest Request() {
    StepRequest request;
    request.layer = LayerId{3};
    request.tokens = 3;
    request.x = x_.data();
    request.x_stride = kHidden + 4;
    request.ids = ids_.data();
    request.ids_stride = 2;
    request.weights = weights_.data();
    request.weights_stride = 2;
    request.top_k = 2;
    request.y = y_.data();
    request.y_stride = kHidden + 1;
    return request;
  }

  testing::ScriptedGateway gateway_;
  SteadyClock clock_;
  std::unique_ptr<Source> source_;
  Source::SessionRef session_ = 0;
  std::vector<Bf16> x_ = std::vector<Bf16>(3 * (kHidden + 4));
  std::vector<std::int32_t> ids_ = std::vector<std::int32_t>(6);
  std::vector<float> weights_ = std::vector<float>(6, 0.5F);
  std::vector<float> y_ = std::vector<float>(3 * (kHidden + 1));
};

TEST_F(GatewayRunnerTest, SendsDenseRowsAndWritesYWithTheCallersStrides) {
  SY_ASSERT_OK(Open());

  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, Submit(Request()));
  ASSERT_EQ(gateway_.taken.size(), 1U);
  EXPECT_EQ(gateway_.taken[0].x.size(), 3 * kHidden * sizeof(Bf16));
  gateway_.Answer(gateway_.taken[0], 2.0F);

  SY_ASSERT_OK(Wait(ticket));
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t i = 0; i < kHidden; ++i) {
      EXPECT_EQ(y_[t * (kHidden + 1) + i], 2.0F * Bf16ToFloat(x_[t * (kHidden + 4) + i]));
    }
    EXPECT_TRUE(std::isnan(y_[t * (kHidden + 1) + kHidden]));  // the gap stays untouched
  }
}

TEST_F(GatewayRunnerTest, AStepsOwnDeadlineGoesWithIt) {
  SY_ASSERT_OK(Open());
  StepRequest request = Request();
  request.deadline = seconds(3);

  SY_ASSERT_OK(Submit(request));
  SY_ASSERT_OK(Submit(Request()));

  ASSERT_EQ(gateway_.taken.size(), 2U);
  EXPECT_EQ(gateway_.taken[0].deadline, seconds(3));
  EXPECT_EQ(gateway_.taken[1].deadline, Duration::zero()) << "the session's";
}

TEST_F(GatewayRunnerTest, AnswersInAnyOrderGoToTheirOwnSteps) {
  SY_ASSERT_OK(Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto one, Submit(Request()));
  StepRequest other = Request();
  std::vector<float> second(y_.size());
  other.y = second.data();
  SY_ASSERT_OK_AND_ASSIGN(const auto two, Submit(other));

  gateway_.Answer(gateway_.taken[1], 3.0F);
  SY_ASSERT_OK_AND_ASSIGN(const bool first_done, source_->IsDone(session_, one));
  EXPECT_FALSE(first_done);
  gateway_.Answer(gateway_.taken[0], 1.0F);

  SY_EXPECT_OK(Wait(two));
  SY_EXPECT_OK(Wait(one));
  EXPECT_EQ(y_[0], Bf16ToFloat(x_[0]));
  EXPECT_EQ(second[0], 3.0F * Bf16ToFloat(x_[0]));
}

TEST_F(GatewayRunnerTest, KeepsTheCreditsThatWereGranted) {
  SY_ASSERT_OK(Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto one, Submit(Request()));
  SY_ASSERT_OK(Submit(Request()));

  EXPECT_THAT(Submit(Request()),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));

  gateway_.Answer(gateway_.taken[0], 1.0F);
  SY_ASSERT_OK(Wait(one));
  SY_EXPECT_OK(Submit(Request()));
}

TEST_F(GatewayRunnerTest, RefusesBadInputBeforeSendingIt) {
  SY_ASSERT_OK(Open());
  StepRequest request = Request();
  request.layer = LayerId{4};
  EXPECT_THAT(Submit(request), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
  request = Request();
  request.top_k = 3;
  EXPECT_THAT(Submit(request), FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
  EXPECT_TRUE(gateway_.taken.empty());
}

TEST_F(GatewayRunnerTest, AWrongAnswerSizeIsAnErrorAndYStaysUntouched) {
  SY_ASSERT_OK(Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, Submit(Request()));

  const std::vector<std::byte> shorter(8);
  gateway_.sink_->OnStep(gateway_.taken[0].step, absl::OkStatus(), shorter);

  EXPECT_THAT(Wait(ticket), FailsWith(absl::StatusCode::kInternal, Reason::kFrame));
  EXPECT_TRUE(std::isnan(y_[0]));
}

TEST_F(GatewayRunnerTest, TheEndOfTheStreamFailsWhatIsOutstandingAndAnotherGatewayGoesOn) {
  gateway_.workers = {"w0", "w1"};
  SY_ASSERT_OK(Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, Submit(Request()));
  gateway_.worker_id = "w1";
  std::thread ender([this] {
    gateway_.sink_->OnEnded(
        MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gateway gone"));
  });

  EXPECT_THAT(Wait(ticket), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));

  ender.join();
  SY_ASSERT_OK_AND_ASSIGN(const auto next, SubmitUntilTaken());
  gateway_.Answer(gateway_.taken.back(), 1.0F);
  SY_EXPECT_OK(Wait(next));
  EXPECT_THAT(gateway_.asked, ::testing::ElementsAre("g0", "host-w0"));
  SY_ASSERT_OK_AND_ASSIGN(const RunnerStatus status, source_->Status(session_));
  EXPECT_EQ(status.gateway_worker, "w1");
}

TEST_F(GatewayRunnerTest, BetweenTwoGatewaysStepsAreRefusedAndMayBeRepeated) {
  GatewayRunner runner(TwoGateways());
  TimePoint now{seconds(100)};
  SY_ASSERT_OK(runner.Start(now));
  runner.Poll(now);
  gateway_.silent = true;
  gateway_.sink_->OnEnded(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gone"));

  for (int poll = 0; poll < 3; ++poll) {
    const absl::Status refused = runner.Submit(Request(), now).status();
    EXPECT_THAT(refused, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
    EXPECT_EQ(MetadataOf(refused)["worker"], "w0");
    runner.Poll(now);
  }
  // One that does not answer is given up for the next.
  now += seconds(11);
  for (int poll = 0; poll < 3; ++poll) now = std::min(runner.Poll(now).wake_at, now + seconds(1));
  EXPECT_THAT(gateway_.asked, ::testing::ElementsAre("g0", "host-w0", "g1"));
}

TEST_F(GatewayRunnerTest, MovesFromAGatewayThatLeavesWithoutFailingAStep) {
  GatewayRunner runner(TwoGateways());
  TimePoint now{seconds(100)};
  SY_ASSERT_OK(runner.Start(now));
  runner.Poll(now);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket before, runner.Submit(Request(), now));
  StepSink* const former = gateway_.sink_;
  gateway_.worker_id = "w1";
  gateway_.silent = true;
  former->OnNews({.plan = {}, .leaving = true});
  runner.Poll(now);
  // Until the other one has opened the session, the former serves.
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket between, runner.Submit(Request(), now));
  EXPECT_EQ(gateway_.taken.back().sink, former);
  GatewayGrant grant;
  grant.grant = runner.Status().grant;
  grant.credits = 4;
  grant.worker_id = "w1";
  gateway_.sink_->OnOpened(grant);
  runner.Poll(now);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket after, runner.Submit(Request(), now));
  EXPECT_NE(gateway_.taken.back().sink, former);
  EXPECT_EQ(gateway_.streams, 2);

  for (const auto& taken : gateway_.taken) gateway_.Answer(taken, 1.0F);

  for (const StepTicket& ticket : {before, between, after}) SY_EXPECT_OK(runner.Take(ticket, now));
  runner.Poll(now);
  EXPECT_EQ(gateway_.streams, 1) << "the former has nothing left to do";
  EXPECT_EQ(runner.Status().gateway_worker, "w1");
}

TEST_F(GatewayRunnerTest, AGatewayThatLeavesServesOnWhereThereIsNoOther) {
  GatewayRunner runner({.steps = &gateway_, .gateways = {"g0"}, .request = {}, .wake = [] {}});
  gateway_.workers = {};
  TimePoint now{seconds(100)};
  SY_ASSERT_OK(runner.Start(now));
  runner.Poll(now);
  StepSink* const first = gateway_.sink_;
  gateway_.refuse =
      MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "g0 takes no new sessions");
  first->OnNews({.plan = {}, .leaving = true});

  for (int poll = 0; poll < 100; ++poll) {
    runner.Poll(now);
    now += std::chrono::milliseconds(100);
    ASSERT_TRUE(runner.Submit(Request(), now).ok() || poll >= 2) << poll;
  }

  EXPECT_GT(gateway_.opens, 5);
  EXPECT_LT(gateway_.opens, 30) << "once a second after a while";
  runner.Poll(now);
  EXPECT_EQ(gateway_.streams, 1);
}

// A tenant that may have one session has room for the next when the first has ended.
TEST_F(GatewayRunnerTest, ATenantAtItsLimitLeavesOneGatewayBeforeItIsAtTheOther) {
  GatewayRunner runner(TwoGateways());
  TimePoint now{seconds(100)};
  SY_ASSERT_OK(runner.Start(now));
  runner.Poll(now);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket before, runner.Submit(Request(), now));
  StepSink* const former = gateway_.sink_;
  // A gateway that is full says nothing of what this session's caller has open: the former serves.
  gateway_.refuse = MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                              "g1 is full", {{"worker", "g1"}, {"limit", "16"}});
  former->OnNews({.plan = {}, .leaving = true});
  const auto poll_for = [&](int polls) {
    for (int poll = 0; poll < polls; ++poll) {
      now += std::chrono::milliseconds(100);
      runner.Poll(now);
    }
    runner.Poll(now);  // a stream that was refused goes
  };
  poll_for(3);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket between, runner.Submit(Request(), now));

  gateway_.refuse = MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions,
                              "the tenant of a has 1 sessions open and may have 1",
                              {{"id", "a"}, {"limit", "1"}});
  poll_for(20);

  EXPECT_THAT(runner.Submit(Request(), now).status(),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost))
      << "to be repeated";
  EXPECT_EQ(gateway_.streams, 1) << "steps in flight are still answered";
  for (const auto& taken : gateway_.taken) gateway_.Answer(taken, 1.0F);
  for (const StepTicket& ticket : {before, between}) SY_EXPECT_OK(runner.Take(ticket, now));
  poll_for(1);
  EXPECT_EQ(gateway_.streams, 0) << "which gives its part back";
  gateway_.refuse = absl::OkStatus();
  poll_for(20);
  SY_ASSERT_OK(runner.Submit(Request(), now).status());
  EXPECT_EQ(gateway_.streams, 1);
}

TEST_F(GatewayRunnerTest, FollowsThePlansOfItsGateway) {
  SY_ASSERT_OK(Open());
  SY_ASSERT_OK_AND_ASSIGN(RunnerStatus status, source_->Status(session_));
  PlanUpdate update{.plan = status.grant.plan, .hash = {}};
  update.plan.epoch = Epoch{7};
  update.hash.bytes[0] = 9;

  gateway_.sink_->OnNews({.plan = update, .leaving = false});

  SY_ASSERT_OK_AND_ASSIGN(status, source_->Status(session_));
  EXPECT_EQ(status.epoch, Epoch{7});
  EXPECT_EQ(status.grant.hash, update.hash);
  SY_ASSERT_OK_AND_ASSIGN(const Epoch epoch, source_->EpochOf(session_));
  EXPECT_EQ(epoch, Epoch{7});
}

// The caller's y has the size that the session was opened with.
TEST_F(GatewayRunnerTest, IgnoresNewsOfAnotherShapeAndOfAnOldPlan) {
  SY_ASSERT_OK(Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, Submit(Request()));
  SY_ASSERT_OK_AND_ASSIGN(const RunnerStatus opened, source_->Status(session_));
  PlanUpdate wide{.plan = opened.grant.plan, .hash = {}};
  wide.plan.epoch = Epoch{7};
  wide.plan.shape.hidden = 2 * kHidden;
  PlanUpdate old{.plan = opened.grant.plan, .hash = {}};
  old.plan.epoch = Epoch{};

  gateway_.sink_->OnNews({.plan = wide, .leaving = false});
  gateway_.sink_->OnNews({.plan = old, .leaving = false});

  const std::vector<std::byte> twice(std::size_t{3} * 2 * kHidden * sizeof(float));
  gateway_.sink_->OnStep(gateway_.taken[0].step, absl::OkStatus(), twice);
  EXPECT_THAT(Wait(ticket), FailsWith(absl::StatusCode::kInternal, Reason::kFrame));
  SY_ASSERT_OK_AND_ASSIGN(const RunnerStatus status, source_->Status(session_));
  EXPECT_EQ(status.grant.plan, opened.grant.plan);
}

TEST_F(GatewayRunnerTest, MovesWithWhatWasGrantedAndNotWithWhatWasAskedFor) {
  GatewayRunnerOptions options = TwoGateways();
  gateway_.planned = DispatchMode::kLowLatency;
  GatewayRunner runner(std::move(options));
  const TimePoint now{seconds(100)};
  SY_ASSERT_OK(runner.Start(now));
  runner.Poll(now);
  gateway_.sink_->OnEnded(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gone"));
  gateway_.planned = DispatchMode::kNormal;

  for (int poll = 0; poll < 3; ++poll) runner.Poll(now);

  ASSERT_EQ(gateway_.requests.size(), 2U);
  EXPECT_EQ(gateway_.requests[0].mode, std::nullopt);
  EXPECT_EQ(gateway_.requests[1].mode, DispatchMode::kLowLatency);
}

TEST_F(GatewayRunnerTest, OneGatewaysTroubleDoesNotEndASessionThatOthersCanServe) {
  gateway_.workers = {};
  GatewayRunner runner(TwoGateways());
  TimePoint now{seconds(100)};
  SY_ASSERT_OK(runner.Start(now));
  runner.Poll(now);
  gateway_.refuse = MakeError(absl::StatusCode::kInternal, Reason::kInternal, "out of order");
  gateway_.sink_->OnEnded(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gone"));
  runner.Poll(now);
  runner.Poll(now);
  EXPECT_THAT(runner.Submit(Request(), now),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  gateway_.refuse = absl::OkStatus();

  for (int poll = 0; poll < 3; ++poll) runner.Poll(now += seconds(1));

  SY_EXPECT_OK(runner.Submit(Request(), now));
}

TEST_F(GatewayRunnerTest, AGatewayThatHasToWaitOutweighsOneThatIsGone) {
  GatewayRunner runner(TwoGateways());
  const TimePoint now{seconds(100)};
  gateway_.refuse = MakeError(absl::StatusCode::kUnavailable, Reason::kNotReady, "no epoch yet");
  SY_ASSERT_OK(runner.Start(now));
  gateway_.refuse = MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "nobody there");

  RunnerProgress progress;
  for (int poll = 0; poll < 4; ++poll) progress = runner.Poll(now);

  EXPECT_EQ(progress.state, RunnerProgress::State::kFailed);
  EXPECT_THAT(progress.why, FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
}

TEST_F(GatewayRunnerTest, AnotherModelAtTheNextGatewayEndsTheSession) {
  GatewayRunner runner(TwoGateways());
  const TimePoint now{seconds(100)};
  SY_ASSERT_OK(runner.Start(now));
  runner.Poll(now);
  gateway_.manifest.bytes[0] = 1;
  gateway_.sink_->OnEnded(MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gone"));

  for (int poll = 0; poll < 3; ++poll) runner.Poll(now);

  EXPECT_THAT(runner.Submit(Request(), now),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kModelChanged));
}

TEST_F(GatewayRunnerTest, AsksEveryGatewayBeforeItIsRefused) {
  GatewayRunner runner(TwoGateways());
  TimePoint now{seconds(100)};
  gateway_.refuse =
      MakeError(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions, "full");
  SY_ASSERT_OK(runner.Start(now));

  RunnerProgress progress;
  for (int poll = 0; poll < 4; ++poll) progress = runner.Poll(now);

  EXPECT_EQ(progress.state, RunnerProgress::State::kFailed);
  EXPECT_THAT(progress.why,
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kTooManySessions));
  EXPECT_THAT(gateway_.asked, ::testing::ElementsAre("g0", "g1"));
}

TEST_F(GatewayRunnerTest, ATicketIsGoodOnce) {
  SY_ASSERT_OK(Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, Submit(Request()));
  gateway_.Answer(gateway_.taken[0], 1.0F);
  SY_ASSERT_OK(Wait(ticket));

  EXPECT_THAT(Wait(ticket), FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
}

TEST_F(GatewayRunnerTest, SaysWhyTheGatewayRefused) {
  gateway_.refuse = MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel, "no such model");

  EXPECT_THAT(Open(), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

TEST_F(GatewayRunnerTest, StatusNamesTheGatewayAndItsGrant) {
  SY_ASSERT_OK(Open());
  SY_ASSERT_OK(Submit(Request()));

  SY_ASSERT_OK_AND_ASSIGN(const RunnerStatus status, source_->Status(session_));

  EXPECT_EQ(status.gateway_worker, "w0");
  EXPECT_EQ(status.grant.binding, Binding::kGateway);
  EXPECT_EQ(status.epoch, Epoch{1});
  EXPECT_EQ(status.steps_in_flight, 1U);
}

TEST_F(GatewayRunnerTest, AStepThatTheGatewayNeverAnswersEndsByItself) {
  GatewayRunner runner({.steps = &gateway_, .gateways = {"g0"}, .request = {}, .wake = [] {}});
  TimePoint now{seconds(100)};
  SY_ASSERT_OK(runner.Start(now));
  runner.Poll(now);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, runner.Submit(Request(), now));

  now = runner.Poll(now).wake_at;  // the session's deadline of 5 s, and the way there and back
  EXPECT_EQ(now, TimePoint{seconds(107)});
  EXPECT_TRUE(runner.Poll(now).worked);

  EXPECT_THAT(runner.Take(ticket, now),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kStepDeadline));
}

TEST_F(GatewayRunnerTest, ATicketTakenEarlyIsGivenUpAndYStaysUntouched) {
  GatewayRunner runner({.steps = &gateway_, .gateways = {"g0"}, .request = {}, .wake = [] {}});
  SY_ASSERT_OK(runner.Start({}));
  runner.Poll({});
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, runner.Submit(Request(), {}));

  EXPECT_TRUE(absl::IsCancelled(runner.Take(ticket, {})));
  gateway_.Answer(gateway_.taken[0], 1.0F);

  EXPECT_TRUE(std::isnan(y_[0]));
}

TEST_F(GatewayRunnerTest, ClosingFailsWhoeverWaits) {
  SY_ASSERT_OK(Open());
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(Request()));
  std::thread closer([this] { SY_EXPECT_OK(source_->Close(session_, seconds(1))); });

  EXPECT_THAT(Wait(ticket),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed));
  closer.join();
  EXPECT_THAT(Submit(Request()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed));
}

}  // namespace
}  // namespace switchyard
