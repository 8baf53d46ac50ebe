// Attachments whose links' memory is made and met on another thread, whose turns the test gives.
#include "gmock/gmock.h"

#include "tests/worker/source/p2p/runner_fixture.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::GrantFor;
using testing::MakeTestPlan;
using testing::RunnerFixture;
using testing::TestBatch;

constexpr DispatchMode kLl = DispatchMode::kLowLatency;

class EpochBinderAttachTest : public RunnerFixture {
 protected:
  EpochBinderAttachTest() { transport_.makes_memory = true; }

  void RunAllAside() {
    while (transport_.RunOneAside()) Pump();
  }
  void Grant(const Plan& plan, std::size_t worker, std::uint32_t attachment) {
    const auto stream = channel_.Open(plan.workers[worker].endpoint);
    ASSERT_NE(stream, nullptr);
    stream->sink->OnAttached(GrantFor(stream->order, plan.workers[worker].incarnation, attachment));
    Pump();
  }
};

TEST_F(EpochBinderAttachTest, OffersWhenMemoryIsMadeAndConnectsWhenThePeerWasMet) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  Start(plan);
  Pump();
  EXPECT_TRUE(transport_.links.empty());
  EXPECT_TRUE(channel_.streams.empty());
  ASSERT_TRUE(transport_.RunOneAside());
  Pump();
  ASSERT_EQ(transport_.links.size(), 1U);
  const auto memory = transport_.links[0]->made_with;
  ASSERT_NE(memory, nullptr);

  Grant(plan, 0, 7);
  EXPECT_FALSE(runner_->ready().ok()) << "the worker's ring is not mapped yet";
  EXPECT_THAT(memory->met, ::testing::IsEmpty());
  ASSERT_TRUE(transport_.RunOneAside());
  Pump();

  EXPECT_THAT(memory->met, ::testing::ElementsAre(AttachmentId{7}));
  SY_ASSERT_OK(runner_->ready());
  EXPECT_EQ(memory.use_count(), 2) << "this test's and the link's, which frees it";
  const TestBatch batch(9, 3);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  AnswerAll(plan);
  SY_ASSERT_OK(Take(ticket));
  EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
}

TEST_F(EpochBinderAttachTest, StepsOfTheCurrentEpochGoOnWhileAJoiningWorkersMemoryIsMade) {
  const Plan one = MakeTestPlan(1, {"a"}, kLl);
  Start(one);
  RunAllAside();
  Grant(one, 0, 1);
  RunAllAside();
  SY_ASSERT_OK(runner_->ready());
  const Plan two = MakeTestPlan(2, {"a", "b"}, kLl);
  channel_.watch_sink->OnPlan({two, HashOf(two), {}});
  Pump();
  channel_.Open("host-a")->sink->OnBound(Epoch{2}, absl::OkStatus());
  Pump();

  for (std::uint64_t seed = 1; seed < 4; ++seed) {
    EXPECT_EQ(runner_->epoch(), Epoch{1});
    const TestBatch batch(5, seed);
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
    AnswerAll(one);
    SY_ASSERT_OK(Take(ticket));
    EXPECT_EQ(batch.y, batch.ExpectedLowLatency());
    if (seed == 1) RunAllAside();
    if (seed == 2) Grant(two, 1, 2);
  }
  RunAllAside();

  EXPECT_EQ(runner_->epoch(), Epoch{2});
}

TEST_F(EpochBinderAttachTest, MemoryThatNoPlanNeedsAnyMoreIsFreedAside) {
  const Plan one = MakeTestPlan(1, {"a"}, kLl);
  Start(one);
  RunAllAside();
  Grant(one, 0, 1);
  RunAllAside();
  const Plan two = MakeTestPlan(2, {"a", "b"}, kLl);
  channel_.watch_sink->OnPlan({two, HashOf(two), {}});
  Pump();
  ASSERT_EQ(transport_.aside.size(), 1U) << "to make the memory for b";
  Plan three = MakeTestPlan(3, {"a"}, kLl);
  channel_.watch_sink->OnPlan({three, HashOf(three), {}});
  Pump();

  ASSERT_TRUE(transport_.RunOneAside());
  Pump();

  EXPECT_EQ(transport_.links.size(), 1U);
  EXPECT_EQ(transport_.aside.size(), 1U) << "to free it";
  channel_.Open("host-a")->sink->OnBound(Epoch{3}, absl::OkStatus());
  Pump();
  EXPECT_EQ(runner_->epoch(), Epoch{3});
}

TEST_F(EpochBinderAttachTest, AStreamThatEndsWhileThePeerIsMetBeginsAnew) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  Start(plan);
  RunAllAside();
  Grant(plan, 0, 1);
  channel_.Open("host-a")->sink->OnAttachEnded(absl::UnavailableError("gone"));
  Pump();
  RunAllAside();
  EXPECT_THAT(runner_->ready(), FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  EXPECT_TRUE(transport_.links.empty());

  clock_.Advance(std::chrono::seconds(1));
  Pump();
  RunAllAside();
  Grant(plan, 0, 2);
  RunAllAside();

  SY_EXPECT_OK(runner_->ready());
}

// The second would map its ring in place of one that frames are written to.
TEST_F(EpochBinderAttachTest, AWorkerThatGrantsTwiceIsHeardOnce) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  Start(plan);
  RunAllAside();
  const auto memory = transport_.links.at(0)->made_with;
  Grant(plan, 0, 1);
  Grant(plan, 0, 2);
  RunAllAside();
  Grant(plan, 0, 3);
  RunAllAside();

  SY_EXPECT_OK(runner_->ready());
  EXPECT_THAT(memory->met, ::testing::ElementsAre(AttachmentId{1}));
  EXPECT_EQ(channel_.streams.size(), 1U);
}

TEST_F(EpochBinderAttachTest, WhatIsAsideMayEndAfterTheSession) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kLl);
  Start(plan);
  ASSERT_TRUE(transport_.RunOneAside());
  Pump();
  Grant(plan, 0, 1);
  ASSERT_EQ(transport_.aside.size(), 2U) << "b's memory, and a's peer";
  const int wakes = transport_.wakes;
  watch_.reset();
  runner_.reset();

  while (transport_.RunOneAside()) {
  }

  EXPECT_EQ(transport_.wakes, wakes) << "nobody is left to wake";
  EXPECT_TRUE(transport_.links.empty());
}

}  // namespace
}  // namespace switchyard
