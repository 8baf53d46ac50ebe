// Steps of a session against workers that the test answers for: sums, credits, errors, deadlines.
#include "worker/source/p2p/p2p_runner.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "gmock/gmock.h"

#include "tests/worker/source/p2p/runner_fixture.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::IsOk;
using testing::kHidden;
using testing::kTopK;
using testing::MakeTestPlan;
using testing::RunnerFixture;
using testing::ScriptedLink;
using testing::TestBatch;

constexpr DispatchMode kLl = DispatchMode::kLowLatency;
constexpr DispatchMode kNm = DispatchMode::kNormal;

class P2pRunnerTest : public RunnerFixture {};

TEST_F(P2pRunnerTest, LowLatencySumsInTheOrderOfKWhateverTheOrderOfReplies) {
  const Plan plan = MakeTestPlan(1, {"a", "b", "c"}, kLl);
  OpenReady(plan);
  for (const std::vector<std::size_t>& order :
       {std::vector<std::size_t>{0, 1, 2}, std::vector<std::size_t>{2, 1, 0}}) {
    const TestBatch batch(17, 3);

    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
    AnswerAll(plan, order);

    SY_ASSERT_OK(Take(ticket));
    EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
  }
}

// R56: experts 0, 1 and 3 scale by powers of two, which BF16 holds exactly; with the weights scaled
// back they are identities.
TEST_F(P2pRunnerTest, LowLatencySumOfIdentityExpertsIsTheWeightedInput) {
  const Plan plan = MakeTestPlan(1, {"a", "b", "c"}, kLl);
  OpenReady(plan);
  TestBatch batch(29, 12);
  const std::vector<float> identity = batch.weights;
  for (std::size_t i = 0; i < batch.ids.size(); i += kTopK) {
    for (std::size_t k = 0; k < kTopK; ++k) {
      batch.ids[i + k] = std::array{3, 0, 1}[k];
      batch.weights[i + k] = identity[i + k] / std::array{4.0F, 1.0F, 2.0F}[k];
    }
  }

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  AnswerAll(plan, {1, 2, 0});

  SY_ASSERT_OK(Take(ticket));
  for (std::size_t i = 0; i < batch.y.size(); ++i) {
    const std::size_t t = i / kHidden * kTopK;
    const double sum = double{identity[t]} + identity[t + 1] + identity[t + 2];
    ASSERT_NEAR(batch.y[i], sum * Bf16ToFloat(batch.x[i]), 1e-5) << i;
  }
}

TEST_F(P2pRunnerTest, NormalAddsWorkersInTheOrderOfOrdinals) {
  const Plan plan = MakeTestPlan(1, {"a", "b", "c"}, kNm);
  OpenReady(plan);
  for (const std::vector<std::size_t>& order :
       {std::vector<std::size_t>{0, 1, 2}, std::vector<std::size_t>{2, 0, 1}}) {
    const TestBatch batch(40, 4);

    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
    AnswerAll(plan, order);

    SY_ASSERT_OK(Take(ticket));
    const std::vector<float> expected = batch.ExpectedNormal(plan);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(batch.y[i], expected[i], 0.05 * std::fabs(expected[i]) + 1e-3) << i;
    }
  }
}

TEST_F(P2pRunnerTest, NormalIsBitEqualForRepeats) {
  const Plan plan = MakeTestPlan(1, {"a", "b", "c"}, kNm);
  OpenReady(plan);
  const TestBatch first(40, 9);
  const TestBatch second(40, 9);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket one, Submit(first.Request()));
  AnswerAll(plan, {0, 1, 2});
  SY_ASSERT_OK(Take(one));

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket two, Submit(second.Request()));
  AnswerAll(plan, {1, 2, 0});
  SY_ASSERT_OK(Take(two));

  EXPECT_EQ(first.y, second.y);
}

TEST_F(P2pRunnerTest, NeverSendsMoreThanItsCreditsAndFinishesAllTheSame) {
  const Plan plan = MakeTestPlan(1, {"a"}, kNm);
  OpenReady(plan);  // 2 credits of 5 rows
  const TestBatch batch(33, 5);

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  EXPECT_EQ(LinkOf(plan, 0)->sent.size(), 2U);
  AnswerAll(plan);

  SY_ASSERT_OK(Take(ticket));
  EXPECT_EQ(runner_->Status().attachments[0].credits_free, 2U);
}

// Others may go between. The rest is sent in the same order, also when answers come meanwhile.
TEST_F(P2pRunnerTest, ALargeStepIsEncodedInPieces) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kNm);
  piece_bytes_ = 1;  // a chunk each
  OpenReady(plan);   // 2 credits of 5 rows for each worker
  const TestBatch batch(33, 5);

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));

  const auto sent = [&](std::size_t worker) { return LinkOf(plan, worker)->sent.size(); };
  EXPECT_EQ(sent(0) + sent(1), 1U);
  EXPECT_TRUE(runner_->put_off());
  for (std::size_t pieces = 2; pieces <= 4; ++pieces) {
    EXPECT_TRUE(runner_->Poll(clock_.Now()).worked);
    EXPECT_EQ(sent(0) + sent(1), pieces);
  }
  EXPECT_FALSE(runner_->put_off()) << "the rest waits for answers";
  EXPECT_FALSE(runner_->Poll(clock_.Now()).worked);
  AnswerAll(plan);
  SY_ASSERT_OK(Take(ticket));

  // Bit-equal to a step in one piece.
  const TestBatch again(33, 5);
  piece_bytes_ = 0;
  OpenReady(plan);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket whole, Submit(again.Request()));
  AnswerAll(plan);
  SY_ASSERT_OK(Take(whole));
  EXPECT_EQ(batch.y, again.y);
}

TEST_F(P2pRunnerTest, TwoStepsShareCreditsWithoutHoldingEachOtherUp) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kLl);
  OpenReady(plan);
  const TestBatch first(30, 6);
  const TestBatch second(30, 7);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket one, Submit(first.Request()));
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket two, Submit(second.Request(LayerId{1})));

  AnswerAll(plan, {1, 0});

  SY_ASSERT_OK(Take(two));
  SY_ASSERT_OK(Take(one));
  EXPECT_EQ(first.y, first.ExpectedLowLatency());
  EXPECT_EQ(second.y, second.ExpectedLowLatency());
}

// R31, R32: two micro-batches on one layer at once; each ticket is its own batch's, and good once
// while the other is in flight.
TEST_F(P2pRunnerTest, TwoStepsInFlightOnOneLayerEndWithTheirOwnTickets) {
  for (const DispatchMode mode : {kLl, kNm}) {
    const Plan plan = MakeTestPlan(1, {"a", "b"}, mode);
    OpenReady(plan);
    const TestBatch first(7, 21);
    const TestBatch second(5, 22);
    const auto expected = [&](const TestBatch& batch) {
      return mode == kLl ? batch.ExpectedLowLatency() : batch.ExpectedNormal(plan);
    };
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket one, Submit(first.Request(LayerId{1})));
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket two, Submit(second.Request(LayerId{1})));
    ASSERT_NE(first.y, second.y);
    AnswerAll(plan, {1, 0});

    SY_ASSERT_OK(Take(two));
    EXPECT_EQ(second.y, expected(second)) << DispatchModeName(mode);
    EXPECT_THAT(Take(two), FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));

    SY_ASSERT_OK(Take(one));
    EXPECT_EQ(first.y, expected(first)) << DispatchModeName(mode);
    EXPECT_EQ(second.y, expected(second)) << "the other's batch was written to";
    EXPECT_THAT(Take(one), FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
  }
}

// R58
TEST_F(P2pRunnerTest, NoTokensAndRowsWithoutExpertsGiveZeros) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kLl);
  OpenReady(plan);
  const TestBatch none(0, 1);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket empty, Submit(none.Request()));
  SY_EXPECT_OK(Take(empty));

  TestBatch batch(4, 8);
  std::fill(batch.ids.begin(), batch.ids.end(), -1);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));

  SY_ASSERT_OK(Take(ticket));
  EXPECT_EQ(batch.y, std::vector<float>(batch.y.size(), 0.0F));
}

// R44
TEST_F(P2pRunnerTest, RefusesMoreTokensThanLowLatencyTakesNamingBoth) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch fits(64, 2);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(fits.Request()));
  AnswerAll(plan);
  SY_EXPECT_OK(Take(ticket));
  const TestBatch batch(65, 2);

  const auto refused = Submit(batch.Request());

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens));
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::AllOf(::testing::HasSubstr("65"), ::testing::HasSubstr("64")));
}

// R32, R47
TEST_F(P2pRunnerTest, ATicketIsGoodOnceAndTheLayerStaysUsable) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch batch(3, 2);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  AnswerAll(plan);
  SY_ASSERT_OK(Take(ticket));

  EXPECT_THAT(Take(ticket), FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
  EXPECT_THAT(Take({7, 1}), FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));

  const TestBatch again(3, 12);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket next, Submit(again.Request()));
  AnswerAll(plan);
  SY_ASSERT_OK(Take(next));
  EXPECT_EQ(again.y, again.ExpectedLowLatency());
}

// R60
TEST_F(P2pRunnerTest, StridedRowsGiveWhatDenseRowsGive) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kLl);
  OpenReady(plan);
  const TestBatch dense(6, 21);
  const std::size_t stride = kHidden + 3;
  std::vector<Bf16> x(6 * stride, 0x7fc0);
  std::vector<std::int32_t> ids(6 * (kTopK + 2), 99);
  for (std::size_t t = 0; t < 6; ++t) {
    std::memcpy(&x[t * stride], &dense.x[t * kHidden], kHidden * sizeof(Bf16));
    std::memcpy(&ids[t * (kTopK + 2)], &dense.ids[t * kTopK], kTopK * sizeof(std::int32_t));
  }
  StepRequest request = dense.Request();
  request.x = x.data();
  request.x_stride = static_cast<std::int64_t>(stride);
  request.ids = ids.data();
  request.ids_stride = kTopK + 2;

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(request));
  AnswerAll(plan);

  SY_ASSERT_OK(Take(ticket));
  EXPECT_EQ(dense.y, dense.ExpectedLowLatency());
}

// R60
TEST_F(P2pRunnerTest, RefusesOverlappingMisalignedAndMissingViews) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch batch(6, 21);
  const auto refused = [&](auto change) {
    StepRequest request = batch.Request();
    change(request);
    return Submit(request);
  };
  const auto bad_shape = FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape);

  EXPECT_THAT(refused([](StepRequest& r) { r.x_stride = 1; }), bad_shape);
  EXPECT_THAT(refused([](StepRequest& r) { r.ids_stride = 0; }), bad_shape);
  EXPECT_THAT(refused([](StepRequest& r) { r.weights = nullptr; }), bad_shape);
  EXPECT_THAT(refused([](StepRequest& r) { r.tokens = -1; }), bad_shape);
  EXPECT_THAT(refused([](StepRequest& r) {
                r.x = reinterpret_cast<const Bf16*>(reinterpret_cast<const char*>(r.x) + 1);
              }),
              bad_shape);
  EXPECT_THAT(refused([](StepRequest& r) { r.top_k = 2; }),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
  EXPECT_THAT(refused([](StepRequest& r) { r.layer = LayerId{5}; }),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
  EXPECT_EQ(runner_->Status().steps_in_flight, 0U);
}

// R60: a stride says how wide the caller's memory is, so one of another model is refused even where
// it is not used. y would be written beyond it.
TEST_F(P2pRunnerTest, ChecksTheStridesOfASingleRow) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch batch(1, 21);
  const auto refused = [&](std::int64_t StepRequest::*stride, std::int64_t value) {
    StepRequest request = batch.Request();
    request.*stride = value;
    return Submit(request);
  };
  for (std::int64_t StepRequest::*stride : {&StepRequest::x_stride, &StepRequest::ids_stride,
                                            &StepRequest::weights_stride, &StepRequest::y_stride}) {
    for (const std::int64_t value : {std::int64_t{1}, std::int64_t{-1}, std::int64_t{kTopK - 1}}) {
      EXPECT_THAT(refused(stride, value),
                  FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
    }
  }
  StepRequest unused = batch.Request();
  unused.x_stride = unused.ids_stride = unused.weights_stride = unused.y_stride = 0;
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(unused));
  AnswerAll(plan);
  SY_EXPECT_OK(Take(ticket));
}

// A frame numbers the chunks of a worker in 16 bits; beyond that replies would be taken for
// others'.
TEST_F(P2pRunnerTest, RefusesAStepOfMoreChunksThanAFrameCanNumber) {
  const Plan plan = MakeTestPlan(1, {"a"}, DispatchMode::kNormal);
  OpenReady(plan);
  constexpr std::int32_t kChunkRows = 5;  // RunnerFixture::Start
  TestBatch batch(65'535 * kChunkRows + 1, 21);
  for (std::size_t i = 0; i < batch.ids.size(); i += kTopK) batch.ids[i] = 0;
  for (std::size_t i = 1; i < batch.ids.size(); ++i) {
    if (i % kTopK != 0) batch.ids[i] = -1;
  }

  const auto refused = Submit(batch.Request());

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kTooManyTokens));
  EXPECT_EQ(MetadataOf(refused.status()).at("limit"), "65535");
  EXPECT_EQ(runner_->Status().steps_in_flight, 0U);
  const TestBatch small(6, 21);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(small.Request()));
  AnswerAll(plan);
  SY_EXPECT_OK(Take(ticket));
}

TEST_F(P2pRunnerTest, RefusesExpertsOutOfRangeAndTwiceInARow) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  TestBatch batch(6, 21);
  batch.ids[4] = testing::kExperts;
  EXPECT_THAT(Submit(batch.Request()),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kExpertOutOfRange));
  batch.ids[3] = batch.ids[4] = 2;
  EXPECT_THAT(Submit(batch.Request()),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kDuplicateExpert));
}

TEST_F(P2pRunnerTest, StrictSessionRefusesANanNamingItsRow) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenSessionRequest order;
  order.strict = true;
  OpenReady(plan, order);
  TestBatch batch(6, 21);
  batch.x[4 * kHidden + 7] = 0x7fc0;

  const auto refused = Submit(batch.Request());

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kNanInput));
  EXPECT_EQ(testing::StatusOf(refused).ok() ? "" : MetadataOf(refused.status()).at("row"), "4");
}

TEST_F(P2pRunnerTest, StrictSessionRefusesANanWeightUnlessItsIdIsUnused) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenSessionRequest order;
  order.strict = true;
  OpenReady(plan, order);
  TestBatch batch(6, 21);
  batch.ids[5 * kTopK] = -1;
  batch.weights[5 * kTopK] = std::nanf("");
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket taken, Submit(batch.Request()));
  AnswerAll(plan);
  SY_EXPECT_OK(Take(taken));

  batch.ids[3 * kTopK + 1] = 6;
  batch.weights[3 * kTopK + 1] = std::nanf("");
  const auto refused = Submit(batch.Request());

  EXPECT_THAT(refused, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kNanInput));
  EXPECT_EQ(MetadataOf(refused.status()).at("row"), "3");
}

TEST_F(P2pRunnerTest, AnErrorReplyFailsItsStepAloneAndNamesWorkerLayerAndToken) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch batch(2, 5);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request(LayerId{1})));
  ScriptedLink* link = LinkOf(plan, 0);
  ErrorBody body;
  body.code = absl::StatusCode::kFailedPrecondition;
  body.reason = static_cast<std::uint32_t>(Reason::kStaleEpoch);
  body.row = 0;
  body.text = "epoch 1 is gone";

  transport_.Deliver(link, testing::ErrorFrameFor(link->sent.front().frame, body, link->offer(),
                                                  plan.workers[0].incarnation));
  Pump();

  const absl::Status failed = Take(ticket);
  EXPECT_THAT(failed, FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch));
  EXPECT_EQ(MetadataOf(failed).at("worker"), "a");
  EXPECT_EQ(MetadataOf(failed).at("layer"), "1");
  EXPECT_EQ(MetadataOf(failed).count("row"), 1U);
  EXPECT_EQ(runner_->Status().attachments[0].credits_free, 2U);
}

TEST_F(P2pRunnerTest, ARepeatedOrForeignReplyIsCountedAndChangesNothing) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch batch(1, 5);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  ScriptedLink* link = LinkOf(plan, 0);
  const auto frame = link->sent.front().frame;
  const auto answer = testing::AnswerFrame(frame, plan, 0, link->offer());
  transport_.Deliver(link, answer);
  Pump();
  SY_ASSERT_OK(Take(ticket));
  const std::vector<float> y = batch.y;

  transport_.Deliver(link, answer);
  Pump();

  EXPECT_EQ(runner_->Status().attachments[0].replies_unexpected, 1U);
  EXPECT_EQ(runner_->Status().attachments[0].credits_free, 2U);
  EXPECT_EQ(batch.y, y);
}

TEST_F(P2pRunnerTest, AReplyWithOtherRowsOrEpochFailsTheStepNamingWorkerAndLayer) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const auto tampered = [&](auto change) {
    const TestBatch batch(1, 5);
    const auto ticket = Submit(batch.Request());
    ScriptedLink* link = LinkOf(plan, 0);
    auto answer = testing::AnswerFrame(link->sent.front().frame, plan, 0, link->offer());
    link->sent.clear();
    FrameHeader header;
    EXPECT_EQ(DecodeHeader(answer, &header), FrameDrop::kNone);
    change(header);
    HeaderBytes raw;
    EncodeHeader(header, {}, &raw);
    std::copy(raw.begin(), raw.end(), answer.begin());
    transport_.Deliver(link, answer);
    Pump();
    return Take(*ticket);
  };
  const auto refused = FailsWith(absl::StatusCode::kInternal, Reason::kFrame);

  EXPECT_THAT(tampered([](FrameHeader& h) { --h.rows; }), refused);
  EXPECT_THAT(tampered([](FrameHeader& h) { h.epoch = Epoch{9}; }), refused);
  EXPECT_THAT(tampered([](FrameHeader& h) { h.payload_bytes -= 64; }), refused);
  EXPECT_EQ(runner_->Status().attachments[0].credits_free, 2U);
}

TEST_F(P2pRunnerTest, ReplyForAnotherIncarnationIsDropped) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch batch(1, 5);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  ScriptedLink* link = LinkOf(plan, 0);
  auto answer = testing::AnswerFrame(link->sent.front().frame, plan, 0, link->offer());
  FrameHeader header;
  ASSERT_EQ(DecodeHeader(answer, &header), FrameDrop::kNone);
  ++header.source_incarnation;
  HeaderBytes raw;
  EncodeHeader(header, {}, &raw);
  std::copy(raw.begin(), raw.end(), answer.begin());

  transport_.Deliver(link, answer);
  Pump();

  EXPECT_THAT(DoneStatus(runner_->IsDone(ticket)), ::testing::Not(IsOk()));
  EXPECT_EQ(transport_.stats().drops[static_cast<std::size_t>(FrameDrop::kField)], 1U);
}

TEST_F(P2pRunnerTest, DeadlineNamesTheWorkerAndTheLateReplyFreesTheCredit) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch batch(1, 5);
  const std::vector<float> poison = batch.y;
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request(LayerId{1})));
  ScriptedLink* link = LinkOf(plan, 0);

  clock_.Advance(std::chrono::seconds(1));
  Pump();

  const absl::Status late = Take(ticket);
  EXPECT_THAT(late, FailsWith(absl::StatusCode::kUnavailable, Reason::kStepDeadline));
  EXPECT_EQ(MetadataOf(late).at("worker"), "a");
  EXPECT_EQ(MetadataOf(late).at("layer"), "1");
  EXPECT_EQ(runner_->Status().attachments[0].credits_free, 1U);

  transport_.Deliver(link, testing::AnswerFrame(link->sent.front().frame, plan, 0, link->offer()));
  Pump();
  EXPECT_EQ(runner_->Status().attachments[0].credits_free, 2U);
  EXPECT_EQ(runner_->Status().attachments[0].replies_late, 1U);
  EXPECT_EQ(std::memcmp(batch.y.data(), poison.data(), poison.size() * sizeof(float)), 0);
}

// R67
TEST_F(P2pRunnerTest, ALostLinkFailsTheStepsThatAwaitItAndOthersGoOn) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kLl);
  OpenReady(plan);
  TestBatch on_a(2, 5);
  TestBatch on_b(2, 6);
  for (std::size_t i = 0; i < on_a.ids.size(); ++i) {
    on_a.ids[i] = i % kTopK == 0 ? 0 : -1;  // worker a hosts the even experts
    on_b.ids[i] = i % kTopK == 0 ? 1 : -1;
  }
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket one, Submit(on_a.Request()));
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket two, Submit(on_b.Request()));

  transport_.BreakLink(LinkOf(plan, 0));
  Pump();

  const absl::Status lost = Take(one);
  EXPECT_THAT(lost, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_EQ(MetadataOf(lost).at("worker"), "a");
  AnswerAll(plan, {1});
  SY_ASSERT_OK(Take(two));
  EXPECT_EQ(on_b.y, on_b.ExpectedLowLatency());
  EXPECT_THAT(Submit(on_a.Request()),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST_F(P2pRunnerTest, ACreditGivenUpTooLongAgoCostsTheAttachmentItsRings) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch batch(1, 5);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  clock_.Advance(std::chrono::seconds(1));
  Pump();
  EXPECT_FALSE(Take(ticket).ok());
  ASSERT_EQ(transport_.links.size(), 1U);

  clock_.Advance(std::chrono::seconds(10));
  Pump();

  EXPECT_TRUE(transport_.links.empty());
  EXPECT_FALSE(runner_->Status().attachments[0].ready);
}

TEST_F(P2pRunnerTest, AWorkerMayOweAReplyWhileItAnswersWhatWasSentBefore) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch first(1, 5);
  const TestBatch second(1, 6);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket before, Submit(first.Request()));
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket owed, Submit(second.Request()));
  ScriptedLink* const link = LinkOf(plan, 0);
  ASSERT_EQ(link->sent.size(), 2U);
  clock_.Advance(std::chrono::seconds(1));
  Pump();
  EXPECT_FALSE(Take(before).ok());
  EXPECT_FALSE(Take(owed).ok());

  clock_.Advance(std::chrono::seconds(9));
  transport_.Deliver(link, testing::AnswerFrame(link->sent[0].frame, plan, 0, link->offer()));
  Pump();
  clock_.Advance(std::chrono::seconds(9));
  Pump();
  EXPECT_EQ(transport_.links.size(), 1U);

  clock_.Advance(std::chrono::seconds(1));
  Pump();
  EXPECT_TRUE(transport_.links.empty());
}

TEST_F(P2pRunnerTest, AReplyThatIsLostIsNoticedThoughLaterStepsAreAnswered) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenReady(plan);
  const TestBatch batch(1, 5);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  clock_.Advance(std::chrono::seconds(1));
  Pump();
  EXPECT_FALSE(Take(ticket).ok());
  LinkOf(plan, 0)->sent.clear();

  clock_.Advance(std::chrono::seconds(9));
  const TestBatch later(1, 6);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket next, Submit(later.Request()));
  AnswerAll(plan, {0});
  SY_ASSERT_OK(Take(next));
  EXPECT_EQ(transport_.links.size(), 1U);

  clock_.Advance(std::chrono::seconds(1));
  Pump();
  EXPECT_TRUE(transport_.links.empty());
}

}  // namespace
}  // namespace switchyard
