// Steps of a source whose device completes later: nothing waits for it, and nothing that it still
// uses is given back, closed or used again.
#include <cstring>

#include "gmock/gmock.h"

#include "core/base/failure_scope.h"
#include "tests/worker/source/p2p/runner_fixture.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::IsOk;
using testing::MakeTestPlan;
using testing::RunnerFixture;
using testing::TestBatch;

constexpr DispatchMode kLl = DispatchMode::kLowLatency;
constexpr DispatchMode kNm = DispatchMode::kNormal;

class LateStreamTest : public RunnerFixture {
 protected:
  void OpenHeld(const Plan& plan) {
    OpenReady(plan);
    stream_->Hold();
  }
  std::uint32_t CreditsFree(std::size_t attachment) {
    return runner_->Status().attachments[attachment].credits_free;
  }
  static bool IsUntouched(const TestBatch& batch) {
    const std::vector<float> poison = TestBatch(batch.tokens, 1).y;
    return std::memcmp(batch.y.data(), poison.data(), poison.size() * sizeof(float)) == 0;
  }
};

TEST_F(LateStreamTest, AFrameGoesOutOnceItsRowsAreEncodedAndAStepEndsOnceItsSumIs) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenHeld(plan);
  const TestBatch batch(1, 5);

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  Pump();
  EXPECT_TRUE(LinkOf(plan, 0)->sent.empty());
  EXPECT_EQ(CreditsFree(0), 1U);
  stream_->ReleaseOne();
  EXPECT_TRUE(Pump());
  ASSERT_EQ(LinkOf(plan, 0)->sent.size(), 1U);

  ASSERT_TRUE(AnswerOne(plan, 0));
  Pump();
  EXPECT_FALSE(IsDone(ticket));
  EXPECT_TRUE(IsUntouched(batch));
  EXPECT_EQ(CreditsFree(0), 1U) << "the device reads the reply slot";
  stream_->ReleaseOne();
  EXPECT_FALSE(IsDone(ticket)) << "nobody has polled";
  EXPECT_TRUE(Pump());

  EXPECT_TRUE(IsDone(ticket));
  EXPECT_EQ(CreditsFree(0), 2U);
  SY_ASSERT_OK(Take(ticket));
  EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
  EXPECT_EQ(stream_->waits(), 0);
}

// Goal: the bits do not depend on when the device completes. Method: the same batches with a device
// that works in the call, and with completions, answers and polls in random order.
TEST_F(LateStreamTest, GivesTheBitsOfADeviceThatWorksInTheCall) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const DispatchMode mode = seed % 2 == 0 ? kLl : kNm;
    const Plan plan = MakeTestPlan(1, {"a", "b", "c"}, mode);
    OpenReady(plan);
    std::vector<TestBatch> at_once;
    std::vector<TestBatch> late;
    for (std::uint64_t i = 0; i < 3; ++i) {
      at_once.emplace_back(static_cast<std::int32_t>(5 + 9 * i), 100 * seed + i);
      late.emplace_back(static_cast<std::int32_t>(5 + 9 * i), 100 * seed + i);
    }
    for (const TestBatch& batch : at_once) {
      SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
      AnswerAll(plan);
      SY_ASSERT_OK(Take(ticket));
    }

    stream_->Hold();
    SeededRng rng(seed);
    std::vector<StepTicket> tickets;
    for (const TestBatch& batch : late) {
      SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
      tickets.push_back(ticket);
    }
    const auto all_done = [&] {
      return std::all_of(tickets.begin(), tickets.end(),
                         [&](const StepTicket& ticket) { return IsDone(ticket); });
    };
    for (int turn = 0; turn < 10'000 && !all_done(); ++turn) {
      const std::uint64_t what = rng.Below(5);
      if (what < 3) AnswerOne(plan, what);
      if (what == 3) stream_->ReleaseOne();
      if (what == 4) Pump();
    }

    for (std::size_t i = 0; i < late.size(); ++i) {
      ASSERT_TRUE(IsDone(tickets[i])) << "seed " << seed;
      SY_ASSERT_OK(Take(tickets[i]));
      EXPECT_EQ(late[i].y, at_once[i].y) << "seed " << seed << ", batch " << i;
    }
    EXPECT_EQ(stream_->waits(), 0) << "seed " << seed;
    for (std::size_t w = 0; w < 3; ++w) EXPECT_EQ(CreditsFree(w), 2U) << "seed " << seed;
  }
}

TEST_F(LateStreamTest, AStepThatIsOverdueWhileItsRowsAreEncodedEndsWhenTheDeviceLetsGo) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenHeld(plan);
  const TestBatch batch(1, 5);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request(LayerId{1})));

  clock_.Advance(std::chrono::seconds(1));
  Pump();
  EXPECT_FALSE(IsDone(ticket)) << "the device still reads x";
  EXPECT_EQ(runner_->Poll(clock_.Now()).wake_at, TimePoint::max()) << "the device wakes";
  stream_->ReleaseAll();
  Pump();

  ASSERT_TRUE(IsDone(ticket));
  const absl::Status late = Take(ticket);
  EXPECT_THAT(late, FailsWith(absl::StatusCode::kUnavailable, Reason::kStepDeadline));
  EXPECT_EQ(MetadataOf(late).at("layer"), "1");
  EXPECT_EQ(MetadataOf(late).count("worker"), 0U) << "no worker is late: " << late.message();
  EXPECT_TRUE(LinkOf(plan, 0)->sent.empty());
  EXPECT_EQ(CreditsFree(0), 2U);
  EXPECT_TRUE(IsUntouched(batch));
  EXPECT_EQ(stream_->waits(), 0);
}

TEST_F(LateStreamTest, AStepThatIsOverdueWhileItsSumRunsKeepsItsCreditsUntilTheDeviceLetsGo) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenHeld(plan);
  const TestBatch batch(1, 5);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  stream_->ReleaseAll();
  Pump();
  ASSERT_TRUE(AnswerOne(plan, 0));
  Pump();

  clock_.Advance(std::chrono::seconds(1));
  Pump();
  EXPECT_FALSE(IsDone(ticket)) << "the device still writes y";
  EXPECT_EQ(CreditsFree(0), 1U);
  stream_->ReleaseAll();
  Pump();

  ASSERT_TRUE(IsDone(ticket));
  EXPECT_THAT(Take(ticket), FailsWith(absl::StatusCode::kUnavailable, Reason::kStepDeadline));
  EXPECT_EQ(CreditsFree(0), 2U);
}

TEST_F(LateStreamTest, AnErrorOfTheDeviceFailsItsStepAndTheNextOneGoesOn) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  OpenHeld(plan);
  for (const bool at_sum : {false, true}) {
    const TestBatch batch(1, 5);
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
    if (at_sum) {
      stream_->ReleaseAll();
      Pump();
      ASSERT_TRUE(AnswerOne(plan, 0));
      Pump();
    }
    stream_->FailNext(
        MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "the device has died"));
    stream_->ReleaseAll();
    Pump();

    ASSERT_TRUE(IsDone(ticket)) << at_sum;
    EXPECT_THAT(Take(ticket), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
    EXPECT_EQ(CreditsFree(0), 2U) << at_sum;
  }
  const TestBatch next(1, 6);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(next.Request()));
  stream_->ReleaseAll();
  Pump();
  ASSERT_TRUE(AnswerOne(plan, 0));
  Pump();
  stream_->ReleaseAll();
  Pump();
  SY_ASSERT_OK(Take(ticket));
  EXPECT_EQ(next.y, next.ExpectedLowLatency());
}

// What takes memory away from the device at once waits for it; nothing else does.
TEST_F(LateStreamTest, ALostLinkAGivenUpStepAndAClosedSessionLeaveNothingWithTheDevice) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kLl);
  OpenHeld(plan);
  const TestBatch batch(4, 7);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket lost, Submit(batch.Request()));
  ASSERT_GT(stream_->waiting(), 0U);

  transport_.BreakLink(LinkOf(plan, 0));
  Pump();
  EXPECT_EQ(stream_->waiting(), 0U);
  EXPECT_THAT(Take(lost), FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_EQ(CreditsFree(1), 2U);

  OpenHeld(plan);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket given_up, Submit(batch.Request()));
  EXPECT_THAT(Take(given_up), FailsWith(absl::StatusCode::kCancelled, Reason::kUnspecified));
  EXPECT_EQ(stream_->waiting(), 0U);

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket closed, Submit(batch.Request()));
  runner_->Close(clock_.Now());
  EXPECT_EQ(stream_->waiting(), 0U);
  EXPECT_THAT(Take(closed),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed));
}

}  // namespace
}  // namespace switchyard
