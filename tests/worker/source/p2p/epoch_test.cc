// How a session opens, follows epochs, and comes back after losses.
#include "gmock/gmock.h"

#include "tests/worker/source/p2p/runner_fixture.h"

namespace switchyard {
namespace {

using testing::ErrorFrameFor;
using testing::FailsWith;
using testing::GrantFor;
using testing::MakeTestPlan;
using testing::RunnerFixture;
using testing::ScriptedLink;
using testing::TestBatch;

constexpr DispatchMode kLl = DispatchMode::kLowLatency;

class EpochTest : public RunnerFixture {
 protected:
  void Announce(const Plan& plan, const std::vector<Incarnation>& lost = {},
                Duration former_kept = {}) {
    channel_.watch_sink->OnPlan({plan, HashOf(plan), lost, former_kept});
    Pump();
  }
  // The worker's answer to the newest Bind on its stream.
  void AnswerBind(const std::string& endpoint, const absl::Status& result = absl::OkStatus()) {
    const auto stream = channel_.Open(endpoint);
    ASSERT_NE(stream, nullptr);
    ASSERT_FALSE(stream->binds.empty());
    stream->sink->OnBound(stream->binds.back().epoch, result);
    Pump();
    Pump();
  }
  void RunStep(const Plan& plan, std::uint64_t seed) {
    const TestBatch batch(9, seed);
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
    AnswerAll(plan);
    SY_ASSERT_OK(Take(ticket));
    EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
  }
};

TEST_F(EpochTest, IsReadyOnlyWhenEveryWorkerIsAttached) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kLl);
  Start(plan);
  const auto a = channel_.Open("host-a");
  a->sink->OnAttached(GrantFor(a->order, plan.workers[0].incarnation, 1));
  Pump();
  EXPECT_THAT(runner_->ready(), FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));

  const auto b = channel_.Open("host-b");
  b->sink->OnAttached(GrantFor(b->order, plan.workers[1].incarnation, 2));
  Pump();

  SY_EXPECT_OK(runner_->ready());
  EXPECT_EQ(runner_->Status().epoch, Epoch{1});
}

TEST_F(EpochTest, SendsItsRingCookieEpochAndHashWithAttach) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  Start(plan);

  const AttachRequest& order = channel_.Open("host-a")->order;

  EXPECT_EQ(order.cookie, Cookie{77});
  EXPECT_EQ(order.epoch, Epoch{1});
  EXPECT_EQ(order.hash, HashOf(plan));
  EXPECT_EQ(order.reply_ring.slots, 2U);
  EXPECT_GT(order.reply_ring.slot_bytes, 0U);
}

TEST_F(EpochTest, RefusesAWorkerThatAnswersAsAnotherIncarnation) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  Start(plan);
  const auto a = channel_.Open("host-a");

  a->sink->OnAttached(GrantFor(a->order, {9, 9}, 1));
  Pump();

  EXPECT_FALSE(runner_->ready().ok());
  EXPECT_TRUE(transport_.links.empty());
}

TEST_F(EpochTest, AFinalRefusalEndsTheOpenAndAPassingOneIsTriedAgain) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  Start(plan);
  channel_.Open("host-a")->sink->OnAttachEnded(absl::UnavailableError("not yet"));
  Pump();
  EXPECT_THAT(runner_->ready(), FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  clock_.Advance(std::chrono::seconds(1));
  Pump();
  ASSERT_EQ(channel_.streams.size(), 2U);

  channel_.Open("host-a")->sink->OnAttachEnded(
      MakeError(absl::StatusCode::kPermissionDenied, Reason::kBadRequest, "no"));
  Pump();

  EXPECT_EQ(runner_->ready().code(), absl::StatusCode::kPermissionDenied);
}

// With TLS a worker that was restarted and has nothing of the deployment yet knows no session.
TEST_F(EpochTest, AWorkerThatDoesNotKnowTheSessionIsAskedAgain) {
  Start(MakeTestPlan(1, {"a"}, kLl));
  channel_.Open("host-a")->sink->OnAttachEnded(
      MakeError(absl::StatusCode::kNotFound, Reason::kUnknownSession, "was not granted"));
  Pump();
  EXPECT_THAT(runner_->ready(), FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));

  clock_.Advance(std::chrono::seconds(1));
  Pump();

  EXPECT_EQ(channel_.streams.size(), 2U);
}

TEST_F(EpochTest, SwitchesWhenAllHaveBoundAndReleasesTheOldEpochAfterItsLastStep) {
  const Plan one = MakeTestPlan(1, {"a", "b"}, kLl);
  const Plan two = MakeTestPlan(2, {"b", "a"}, kLl);
  OpenReady(one);
  // The second plan lists the same incarnations in another order.
  Plan second = two;
  second.workers[0].incarnation = one.workers[1].incarnation;
  second.workers[1].incarnation = one.workers[0].incarnation;
  const TestBatch batch(3, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket old_step, Submit(batch.Request()));

  Announce(second);
  AnswerBind("host-a");
  EXPECT_EQ(runner_->Status().epoch, Epoch{1});
  AnswerBind("host-b");

  EXPECT_EQ(runner_->Status().epoch, Epoch{2});
  EXPECT_THAT(channel_.Open("host-a")->released, ::testing::IsEmpty());
  AnswerAll(one);
  Pump();
  SY_EXPECT_OK(Take(old_step));
  EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
  EXPECT_THAT(channel_.Open("host-a")->released, ::testing::ElementsAre(Epoch{1}));
  EXPECT_THAT(channel_.Open("host-b")->released, ::testing::ElementsAre(Epoch{1}));
  RunStep(second, 8);
}

// The caller's buffers have the sizes of the model that it opened.
TEST_F(EpochTest, AnotherModelEndsTheSessionAfterItsStepsInFlight) {
  Plan other_weights = MakeTestPlan(2, {"a", "b"}, kLl);
  other_weights.manifest.bytes[0] ^= 1;
  Plan other_shape = MakeTestPlan(2, {"a", "b"}, kLl);
  other_shape.shape.hidden *= 2;
  for (const Plan& two : {other_weights, other_shape}) {
    const Plan one = MakeTestPlan(1, {"a", "b"}, kLl);
    OpenSessionRequest request;
    request.step_deadline = std::chrono::seconds(10);
    OpenReady(one, request);
    const TestBatch batch(3, 4);
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket in_flight, Submit(batch.Request()));

    Announce(two);
    clock_.Advance(std::chrono::seconds(3));
    Pump();

    EXPECT_THAT(Submit(TestBatch(1, 5).Request()),
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kModelChanged));
    EXPECT_THAT(channel_.Open("host-a")->released, ::testing::IsEmpty());
    AnswerAll(one);
    SY_EXPECT_OK(Take(in_flight));
    EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
    Pump();
    EXPECT_EQ(channel_.Open("host-a"), nullptr) << "the epoch is released and its streams closed";
    // The first model again: the session's caller may have thrown away its caches.
    Plan three = MakeTestPlan(3, {"a", "b"}, kLl);
    Announce(three);
    EXPECT_THAT(runner_->ready(),
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kModelChanged));
  }
}

class FormerModelTest : public EpochTest {
 protected:
  void SetUp() override {
    EpochTest::SetUp();
    OpenReady(one_);
    other_.manifest.bytes[0] ^= 1;
    Announce(other_, {}, std::chrono::seconds(30));
  }
  void ExpectEnded() {
    EXPECT_THAT(Submit(TestBatch(1, 5).Request()),
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kModelChanged));
    EXPECT_EQ(channel_.Open("host-a"), nullptr);
  }

  const Plan one_ = MakeTestPlan(1, {"a", "b"}, kLl);
  Plan other_ = MakeTestPlan(2, {"a", "b"}, kLl);
};

TEST_F(FormerModelTest, ServesItsSessionsUntilItsTimeIsOver) {
  RunStep(one_, 3);
  clock_.Advance(std::chrono::milliseconds(29'900));
  // A coordinator that is dialed again repeats the plan; the time began with its first copy.
  Announce(other_, {}, std::chrono::seconds(30));
  RunStep(one_, 4);

  clock_.Advance(std::chrono::milliseconds(100));
  Pump();

  ExpectEnded();
}

TEST_F(FormerModelTest, EndsWithTheFirstStepAfterItsTime) {
  clock_.Advance(std::chrono::seconds(30));

  ExpectEnded();
}

TEST_F(FormerModelTest, EndsWhenTheCoordinatorSaysSo) {
  RunStep(one_, 3);

  Announce(other_);

  ExpectEnded();
}

TEST_F(FormerModelTest, EndsWithItsStepsInFlight) {
  const TestBatch batch(3, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket in_flight, Submit(batch.Request()));
  clock_.Advance(std::chrono::milliseconds(100));

  Announce(other_);

  EXPECT_THAT(Submit(TestBatch(1, 5).Request()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kModelChanged));
  AnswerAll(one_);
  SY_EXPECT_OK(Take(in_flight));
  EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
}

// No plan comes any more that would do without the worker.
TEST_F(FormerModelTest, EndsWithTheFirstOfItsWorkers) {
  channel_.Open("host-b")->sink->OnAttachEnded(absl::UnavailableError("gone"));
  Pump();
  Pump();

  ExpectEnded();
}

TEST_F(FormerModelTest, GoesOnToALaterPlanOfItsOwnModel) {
  const Plan three = [&] {
    Plan plan = MakeTestPlan(3, {"a", "b"}, kLl);
    plan.workers = one_.workers;
    return plan;
  }();
  Announce(three);
  AnswerBind("host-a");
  AnswerBind("host-b");
  clock_.Advance(std::chrono::seconds(60));
  Pump();

  EXPECT_EQ(runner_->Status().epoch, Epoch{3});
  RunStep(three, 6);
}

TEST_F(EpochTest, AttachesNewWorkersFirstAndClosesTheOnesThatNoPlanHolds) {
  const Plan one = MakeTestPlan(1, {"a", "b"}, kLl);
  Plan two = MakeTestPlan(2, {"a", "c"}, kLl);
  OpenReady(one);

  Announce(two);
  const auto c = channel_.Open("host-c");
  ASSERT_NE(c, nullptr);
  EXPECT_EQ(c->order.epoch, Epoch{2});
  AnswerBind("host-a");
  EXPECT_EQ(runner_->Status().epoch, Epoch{1});
  c->sink->OnAttached(GrantFor(c->order, two.workers[1].incarnation, 9));
  Pump();
  Pump();

  EXPECT_EQ(runner_->Status().epoch, Epoch{2});
  EXPECT_EQ(channel_.Open("host-b"), nullptr);
  EXPECT_EQ(transport_.links.size(), 2U);
  RunStep(two, 5);
}

TEST_F(EpochTest, ARestartedWorkerIsAnotherAttachment) {
  const Plan one = MakeTestPlan(1, {"a"}, kLl);
  const Plan two = MakeTestPlan(2, {"a"}, kLl, /*life=*/2);
  OpenReady(one);
  transport_.BreakLink(LinkOf(one, 0));
  Pump();

  Announce(two);
  const auto again = channel_.Open("host-a");
  ASSERT_NE(again, nullptr);
  again->sink->OnAttached(GrantFor(again->order, two.workers[0].incarnation, 3));
  Pump();
  Pump();

  EXPECT_EQ(runner_->Status().epoch, Epoch{2});
  RunStep(two, 5);
}

TEST_F(EpochTest, MakesALostAttachmentAgainUnderTheCurrentEpoch) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  transport_.BreakLink(LinkOf(plan, 0));
  Pump();
  EXPECT_EQ(channel_.Open("host-a"), nullptr);

  clock_.Advance(std::chrono::seconds(1));
  Pump();
  const auto again = channel_.Open("host-a");
  ASSERT_NE(again, nullptr);
  again->sink->OnAttached(GrantFor(again->order, plan.workers[0].incarnation, 3));
  Pump();

  RunStep(plan, 6);
}

TEST_F(EpochTest, DropsWhatComesLateFromAnOlderLifeOfAnAttachment) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const auto first = channel_.Open("host-a");
  AttachSink* late = first->sink;
  late->OnAttachEnded(absl::UnavailableError("gone"));
  late->OnAttachEnded(absl::UnavailableError("gone"));  // both queued under the old serial
  Pump();
  clock_.Advance(std::chrono::seconds(1));
  Pump();
  const auto second = channel_.Open("host-a");
  ASSERT_NE(second, nullptr);
  second->sink->OnAttached(GrantFor(second->order, plan.workers[0].incarnation, 3));
  Pump();

  RunStep(plan, 6);
}

TEST_F(EpochTest, APlanThatIsOvertakenIsReleasedWhereItWasBound) {
  const Plan one = MakeTestPlan(1, {"a", "b"}, kLl);
  OpenReady(one);
  Announce(MakeTestPlan(2, {"a", "b"}, kLl));
  AnswerBind("host-a");

  Announce(MakeTestPlan(3, {"a", "b"}, kLl));
  AnswerBind("host-a");
  AnswerBind("host-b");

  EXPECT_EQ(runner_->Status().epoch, Epoch{3});
  EXPECT_THAT(channel_.Open("host-a")->released,
              ::testing::UnorderedElementsAre(Epoch{2}, Epoch{1}));
}

// A worker that leaves has its link and its stream until it has answered.
TEST_F(EpochTest, AStepThatWaitsForAWorkerPlannedOutEndsWithItsAnswer) {
  const Plan one = MakeTestPlan(1, {"a", "b"}, kLl);
  const Plan two = MakeTestPlan(2, {"a"}, kLl);
  OpenSessionRequest order;
  order.step_deadline = std::chrono::seconds(60);
  OpenReady(one, order);
  const TestBatch batch(9, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  Announce(two);
  AnswerBind("host-a");
  ASSERT_EQ(runner_->Status().epoch, Epoch{2});

  clock_.Advance(std::chrono::seconds(59));
  Pump();
  EXPECT_NE(channel_.Open("host-b"), nullptr);
  AnswerAll(one);
  Pump();

  SY_EXPECT_OK(Take(ticket));
  EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
  EXPECT_EQ(channel_.Open("host-b"), nullptr);
  EXPECT_THAT(channel_.Open("host-a")->released, ::testing::ElementsAre(Epoch{1}));
}

TEST_F(EpochTest, AStepThatWaitsForAWorkerPlannedOutEndsByItsDeadlineOrWithTheWorker) {
  const Plan one = MakeTestPlan(1, {"a", "b"}, kLl);
  const Plan two = MakeTestPlan(2, {"a"}, kLl);
  OpenSessionRequest order;
  order.step_deadline = std::chrono::seconds(60);
  OpenReady(one, order);
  const TestBatch batch(9, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  StepRequest shorter = batch.Request();
  shorter.deadline = std::chrono::seconds(10);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket short_ticket, Submit(shorter));
  Announce(two);
  AnswerBind("host-a");

  clock_.Advance(std::chrono::seconds(10));
  Pump();
  EXPECT_THAT(Take(short_ticket), FailsWith(absl::StatusCode::kUnavailable, Reason::kStepDeadline));
  channel_.Open("host-b")->sink->OnAttachEnded(absl::UnavailableError("its process has ended"));
  Pump();

  EXPECT_THAT(Take(ticket), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

// A step may take longer than the session's deadline, and the worker has to know before it retires
// the epoch.
TEST_F(EpochTest, WorkersLearnTheLongestDeadlineOfTheSessionsSteps) {
  const Plan one = MakeTestPlan(1, {"a"}, kLl);
  OpenSessionRequest order;
  order.step_deadline = std::chrono::seconds(7);
  OpenReady(one, order);
  const auto a = channel_.Open("host-a");
  EXPECT_EQ(a->order.step_deadline, std::chrono::seconds(7));
  const TestBatch batch(9, 4);
  StepRequest request = batch.Request();
  std::vector<StepTicket> tickets;
  for (const int deadline : {3, 90, 80}) {
    request.deadline = std::chrono::seconds(deadline);
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(request));
    tickets.push_back(ticket);
  }
  EXPECT_THAT(a->binds,
              ::testing::ElementsAre(BindRequest{Epoch{1}, HashOf(one), std::chrono::seconds(90)}));
  // A worker that has ended the binding meanwhile is no reason to end the attachment.
  AnswerBind("host-a", MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch, "no"));
  AnswerAll(one);
  for (const StepTicket& ticket : tickets) SY_EXPECT_OK(Take(ticket));

  Announce(MakeTestPlan(2, {"a"}, kLl));

  EXPECT_EQ(a->binds.back().epoch, Epoch{2});
  EXPECT_EQ(a->binds.back().step_deadline, std::chrono::seconds(90));
}

// A stopped worker keeps its link and its stream, and no message ever says that it is gone.
TEST_F(EpochTest, AStepThatWaitsForAWorkerThatIsDeadToTheCoordinatorFailsAndFreesTheOldEpoch) {
  const Plan one = MakeTestPlan(1, {"a", "b"}, kLl);
  const Plan two = MakeTestPlan(2, {"a"}, kLl);
  OpenSessionRequest order;
  order.step_deadline = std::chrono::seconds(60);
  OpenReady(one, order);
  const TestBatch batch(9, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  Announce(two, {one.workers[1].incarnation});
  AnswerBind("host-a");
  ASSERT_EQ(runner_->Status().epoch, Epoch{2});

  clock_.Advance(std::chrono::seconds(2));
  Pump();
  Pump();

  const absl::Status lost = Take(ticket);
  EXPECT_THAT(lost, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_EQ(MetadataOf(lost).at("worker"), "b");
  EXPECT_THAT(channel_.Open("host-a")->released, ::testing::ElementsAre(Epoch{1}));
}

// The link broke, and before it was made again the worker had retired the epoch in use.
TEST_F(EpochTest, AttachesForTheComingEpochWhereTheCurrentOneIsRetired) {
  const Plan one = MakeTestPlan(1, {"a", "b"}, kLl);
  const Plan two = MakeTestPlan(2, {"a", "b"}, kLl);
  OpenReady(one);
  transport_.BreakLink(LinkOf(one, 0));
  Pump();
  Announce(two);
  ASSERT_EQ(channel_.Open("host-a")->order.epoch, Epoch{1});
  channel_.Open("host-a")->sink->OnAttachEnded(
      MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch, "being retired"));
  Pump();
  clock_.Advance(std::chrono::seconds(1));
  Pump();

  const auto again = channel_.Open("host-a");
  ASSERT_NE(again, nullptr);
  EXPECT_EQ(again->order.epoch, Epoch{2});
  again->sink->OnAttached(GrantFor(again->order, two.workers[0].incarnation, 3));
  Pump();
  const TestBatch batch(9, 4);
  EXPECT_THAT(Submit(batch.Request()),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost))
      << "it has not bound the epoch in use";
  AnswerBind("host-b");
  EXPECT_EQ(runner_->Status().epoch, Epoch{2});
  RunStep(two, 8);
}

// As `plan` with every layer's rows in `dtype`.
Plan WithWire(Plan plan, DispatchDtype dtype) {
  for (DispatchConfig& config : plan.configs) config.wire_dtype = dtype;
  return plan;
}

// R35: rows were FP8, the next epoch's are BF16; slots were made for FP8.
TEST_F(EpochTest, WiderRowsTakeANewAttachmentBeforeTheirFirstStep) {
  const Plan one = WithWire(MakeTestPlan(1, {"a"}, kLl), DispatchDtype::kFp8);
  const Plan two = MakeTestPlan(2, {"a"}, kLl);
  OpenReady(one);
  const auto small = channel_.Open("host-a");
  const TestBatch batch(1, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket old_step, Submit(batch.Request()));
  ScriptedLink* old_link = LinkOf(one, 0);
  ASSERT_EQ(old_link->sent.size(), 1U);

  Announce(two);
  const auto large = channel_.Open("host-a");
  ASSERT_NE(large, small);
  EXPECT_TRUE(small->open);
  EXPECT_EQ(large->order.epoch, Epoch{2});
  EXPECT_GT(large->order.request_slot_bytes, small->order.request_slot_bytes);
  EXPECT_EQ(large->order.reply_ring.slot_bytes, small->order.reply_ring.slot_bytes);
  EXPECT_EQ(runner_->Status().epoch, Epoch{1}) << "the new rings are not there yet";
  large->sink->OnAttached(GrantFor(large->order, two.workers[0].incarnation, 3));
  Pump();
  Pump();
  EXPECT_EQ(runner_->Status().epoch, Epoch{2});

  // The worker lives: the old step is not given up for having been planned on other rings.
  clock_.Advance(std::chrono::milliseconds(900));
  Pump();
  EXPECT_TRUE(small->open);
  transport_.Deliver(old_link,
                     ErrorFrameFor(old_link->sent.front().frame,
                                   {.code = absl::StatusCode::kInternal, .text = "answered"},
                                   old_link->offer(), one.workers[0].incarnation));
  Pump();
  Pump();
  EXPECT_THAT(std::string(Take(old_step).message()), ::testing::HasSubstr("answered"));
  EXPECT_FALSE(small->open) << "nothing uses the small rings any more";
  EXPECT_EQ(transport_.links.size(), 1U);
  RunStep(two, 8);
}

// What is large enough stays: a narrower dtype, or more experts on a worker, changes nothing.
TEST_F(EpochTest, NarrowerRowsAndOtherPlacementsKeepTheAttachment) {
  const Plan one = MakeTestPlan(1, {"a", "b"}, kLl);
  OpenReady(one);
  const auto before = channel_.Open("host-a");

  Announce(WithWire(MakeTestPlan(2, {"a"}, kLl), DispatchDtype::kInt8));
  AnswerBind("host-a");
  EXPECT_EQ(runner_->Status().epoch, Epoch{2});
  EXPECT_EQ(channel_.Open("host-a"), before);

  Announce(MakeTestPlan(3, {"a"}, kLl));
  AnswerBind("host-a");
  EXPECT_EQ(channel_.Open("host-a"), before) << "slots never shrink";
  RunStep(MakeTestPlan(3, {"a"}, kLl), 8);
}

// A worker that is full says so, and steps that find the old epoch retired say it on.
TEST_F(EpochTest, ARefusedLargerAttachmentIsTheReasonThatStepsAreGiven) {
  const Plan one = WithWire(MakeTestPlan(1, {"a"}, kLl), DispatchDtype::kFp8);
  OpenReady(one);
  Announce(MakeTestPlan(2, {"a"}, kLl));
  channel_.Open("host-a")->sink->OnAttachEnded(
      MakeError(absl::StatusCode::kResourceExhausted, Reason::kOutOfMemory, "rings are full"));
  Pump();
  channel_.streams.front()->sink->OnAttachEnded(
      MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch, "retired"));
  Pump();

  const TestBatch batch(1, 4);
  const absl::Status refused = Submit(batch.Request()).status();

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(std::string(refused.message()),
              ::testing::AllOf(::testing::HasSubstr("retired"),
                               ::testing::HasSubstr("the next epoch waits: rings are full "
                                                    "(OUT_OF_MEMORY)")));
}

// Frames that were counted on the small rings stay counted.
TEST_F(EpochTest, CountsGoOnWithTheLargerRings) {
  const Plan one = WithWire(MakeTestPlan(1, {"a"}, kLl), DispatchDtype::kFp8);
  OpenReady(one);
  const TestBatch batch(1, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  EXPECT_FALSE(Take(ticket).ok()) << "given up: the workers of this test answer BF16 rows";
  const Plan two = MakeTestPlan(2, {"a"}, kLl);

  Announce(two);
  const auto large = channel_.Open("host-a");
  large->sink->OnAttached(GrantFor(large->order, two.workers[0].incarnation, 3));
  Pump();
  Pump();

  const RunnerStatus status = runner_->Status();
  ASSERT_EQ(status.attachments.size(), 1U);
  EXPECT_EQ(status.attachments[0].frames_sent, 1U);
  RunStep(two, 8);
}

// Made for an epoch that another overtook before the worker had answered.
TEST_F(EpochTest, AnAttachmentGivesBackTheEpochThatWasOvertakenMeanwhile) {
  const Plan one = WithWire(MakeTestPlan(1, {"a"}, kLl), DispatchDtype::kFp8);
  OpenReady(one);
  Announce(MakeTestPlan(2, {"a"}, kLl));
  const auto large = channel_.Open("host-a");
  Announce(MakeTestPlan(3, {"a"}, kLl));
  ASSERT_EQ(channel_.Open("host-a"), large);

  large->sink->OnAttached(GrantFor(large->order, one.workers[0].incarnation, 3));
  Pump();

  EXPECT_THAT(large->released, ::testing::ElementsAre(Epoch{2}));
  AnswerBind("host-a");
  EXPECT_EQ(runner_->Status().epoch, Epoch{3});
}

// The small rings are still there for a step of the first epoch; the third goes on with the large.
TEST_F(EpochTest, ANarrowerEpochStaysOnTheNewestRings) {
  const Plan one = WithWire(MakeTestPlan(1, {"a"}, kLl), DispatchDtype::kFp8);
  OpenSessionRequest order;
  order.step_deadline = std::chrono::seconds(60);
  OpenReady(one, order);
  const TestBatch batch(1, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket old_step, Submit(batch.Request()));
  Announce(MakeTestPlan(2, {"a"}, kLl));
  const auto large = channel_.Open("host-a");
  large->sink->OnAttached(GrantFor(large->order, one.workers[0].incarnation, 3));
  Pump();

  Announce(WithWire(MakeTestPlan(3, {"a"}, kLl), DispatchDtype::kFp8));

  ASSERT_FALSE(large->binds.empty());
  EXPECT_EQ(large->binds.back().epoch, Epoch{3});
  EXPECT_TRUE(channel_.streams.front()->binds.empty());
  EXPECT_FALSE(Take(old_step).ok());
}

// A step that a stopped worker owes ends by its deadline, not by the grace of workers that left.
TEST_F(EpochTest, AStepOnTheOldRingsOutlivesTheGraceOfWorkersThatLeft) {
  const Plan one = WithWire(MakeTestPlan(1, {"a"}, kLl), DispatchDtype::kFp8);
  OpenSessionRequest order;
  order.step_deadline = std::chrono::seconds(10);
  OpenReady(one, order);
  const TestBatch batch(1, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket old_step, Submit(batch.Request()));
  const Plan two = MakeTestPlan(2, {"a"}, kLl);
  Announce(two);
  const auto large = channel_.Open("host-a");
  large->sink->OnAttached(GrantFor(large->order, two.workers[0].incarnation, 3));
  Pump();
  ASSERT_EQ(runner_->Status().epoch, Epoch{2});

  clock_.Advance(std::chrono::seconds(5));
  Pump();
  EXPECT_THAT(DoneStatus(runner_->IsDone(old_step)), ::testing::Not(testing::IsOk()));

  clock_.Advance(std::chrono::seconds(5));
  Pump();
  EXPECT_THAT(Take(old_step), FailsWith(absl::StatusCode::kUnavailable, Reason::kStepDeadline));
}

TEST_F(EpochTest, ForgetsWorkersThatOnlyAnOvertakenPlanNeeded) {
  OpenReady(MakeTestPlan(1, {"a"}, kLl));
  Announce(MakeTestPlan(2, {"a", "c"}, kLl));
  ASSERT_NE(channel_.Open("host-c"), nullptr);

  Announce(MakeTestPlan(3, {"a"}, kLl));

  EXPECT_EQ(channel_.Open("host-c"), nullptr);
  EXPECT_EQ(runner_->Status().attachments.size(), 1U);
}

TEST_F(EpochTest, ASessionThatTheCoordinatorHasForgottenServesWhileItCanAndThenSaysSo) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const auto forgotten = [this] {
    channel_.watch_sink->OnWatchEnded(
        MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch, "open a new one"));
    Pump();
  };
  forgotten();
  RunStep(plan, 2);

  transport_.BreakLink(LinkOf(plan, 0));
  Pump();

  const TestBatch batch(9, 4);
  EXPECT_THAT(Submit(batch.Request()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
}

TEST_F(EpochTest, IgnoresAnOlderPlan) {
  const Plan plan = MakeTestPlan(3, {"a"}, kLl);
  OpenReady(plan);

  Announce(MakeTestPlan(2, {"a", "b"}, kLl));

  EXPECT_EQ(runner_->Status().epoch, Epoch{3});
  EXPECT_EQ(channel_.streams.size(), 1U);
}

TEST_F(EpochTest, RedialsTheWatchAndServesMeanwhile) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  channel_.watch_sink->OnWatchEnded(absl::UnavailableError("coordinator gone"));
  Pump();
  EXPECT_FALSE(watch_->watching());
  RunStep(plan, 2);

  clock_.Advance(std::chrono::seconds(1));
  Pump();

  ASSERT_EQ(channel_.watches.size(), 2U);
  EXPECT_EQ(channel_.watches.back().epoch, Epoch{1});
  EXPECT_EQ(channel_.watches.back().hash, HashOf(plan));
}

TEST_F(EpochTest, CloseFailsWhatIsInFlightAndLeavesNoLink) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kLl);
  OpenReady(plan);
  const TestBatch batch(3, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));

  runner_->Close(clock_.Now());

  EXPECT_THAT(Take(ticket),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed));
  EXPECT_TRUE(transport_.links.empty());
  EXPECT_THAT(Submit(batch.Request()),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed));
}

}  // namespace
}  // namespace switchyard
