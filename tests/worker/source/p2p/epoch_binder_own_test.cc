// A gateway's session: the experts of its own worker are called, and bound like those of any other.
#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "gmock/gmock.h"

#include "tests/worker/source/p2p/runner_fixture.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::MakeTestPlan;
using testing::RunnerFixture;
using testing::TestBatch;

constexpr DispatchMode kLl = DispatchMode::kLowLatency;

// Own experts that compute until the test says that they are done.
class SlowExperts final : public OwnExperts {
 public:
  absl::Status Bind(const OwnBinding& binding) override {
    binds.push_back({binding.epoch, binding.hash, binding.step_deadline});
    return bind_result;
  }
  absl::StatusOr<std::unique_ptr<OwnRun>> Start(const OwnChunk& chunk) override {
    if (running >= queue_max) {
      return MakeError(absl::StatusCode::kResourceExhausted, Reason::kNoCredits, "full");
    }
    started.push_back(chunk.epoch);
    std::ranges::fill(std::span(chunk.out, chunk.count * testing::kHidden), FloatToBf16(1));
    return std::make_unique<Run>(this);
  }
  void SetOnProgress(std::function<void()> /*on_progress*/) override {}
  void Release(SessionId /*session*/, Epoch epoch) override { released.push_back(epoch); }
  void Close(SessionId /*session*/) override {}

  absl::Status bind_result;
  bool done = false;
  int queue_max = 64;
  int running = 0;  // started, and not taken
  int most_running = 0;
  std::vector<BindRequest> binds;
  std::vector<Epoch> started;
  std::vector<Epoch> released;

 private:
  class Run final : public OwnRun {
   public:
    explicit Run(SlowExperts* experts) : experts_(experts) {
      experts_->most_running = std::max(experts_->most_running, ++experts_->running);
    }
    ~Run() override { --experts_->running; }
    [[nodiscard]] bool done() const override { return experts_->done; }
    absl::Status Finish() override { return absl::OkStatus(); }

   private:
    SlowExperts* experts_;
  };
};

class OwnExpertsTest : public RunnerFixture {
 protected:
  OwnExpertsTest() {
    own_experts_ = &experts_;
    own_worker_id_ = "a";
  }
  ~OwnExpertsTest() override { runner_.reset(); }
  void Announce(const Plan& plan) {
    channel_.watch_sink->OnPlan({plan, HashOf(plan)});
    Pump();
    Pump();
  }

  SlowExperts experts_;
};

const absl::Status kStale =
    MakeError(absl::StatusCode::kFailedPrecondition, Reason::kStaleEpoch, "not committed here");

// Otherwise the first step between RETIRE and the switch would find the epoch retired.
TEST_F(OwnExpertsTest, AreBoundWhenTheSessionOpensAndReleasedAfterTheLastStep) {
  const Plan one = MakeTestPlan(1, {"a"}, kLl);
  OpenSessionRequest order;
  order.step_deadline = std::chrono::seconds(9);

  Start(one, order);
  Pump();

  EXPECT_THAT(experts_.binds,
              ::testing::ElementsAre(BindRequest{Epoch{1}, HashOf(one), std::chrono::seconds(9)}));
  SY_ASSERT_OK(runner_->ready());
  const TestBatch batch(3, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  const Plan two = MakeTestPlan(2, {"a"}, kLl);
  Announce(two);
  EXPECT_EQ(runner_->Status().epoch, Epoch{2});
  EXPECT_EQ(experts_.binds.back(), (BindRequest{Epoch{2}, HashOf(two), std::chrono::seconds(9)}));
  EXPECT_TRUE(experts_.released.empty()) << "a chunk of epoch 1 is running";

  experts_.done = true;
  Pump();
  Pump();

  SY_EXPECT_OK(Take(ticket));
  EXPECT_THAT(experts_.released, ::testing::ElementsAre(Epoch{1}));
}

TEST_F(OwnExpertsTest, AnEpochThatTheyDoNotHoldIsTriedAgainAndStepsGoOnMeanwhile) {
  experts_.bind_result = kStale;
  Start(MakeTestPlan(1, {"a"}, kLl));
  Pump();
  EXPECT_THAT(runner_->ready(), FailsWith(absl::StatusCode::kUnavailable, Reason::kNotReady));
  experts_.bind_result = absl::OkStatus();
  clock_.Advance(std::chrono::seconds(1));
  Pump();
  Pump();
  SY_ASSERT_OK(runner_->ready());

  experts_.bind_result = kStale;
  Announce(MakeTestPlan(2, {"a"}, kLl));
  EXPECT_EQ(runner_->Status().epoch, Epoch{1});
  experts_.done = true;
  const TestBatch batch(3, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  Pump();
  SY_EXPECT_OK(Take(ticket));
  EXPECT_EQ(experts_.started.back(), Epoch{1});

  experts_.bind_result = absl::OkStatus();
  clock_.Advance(std::chrono::seconds(1));
  Pump();
  Pump();
  EXPECT_EQ(runner_->Status().epoch, Epoch{2});
}

TEST_F(OwnExpertsTest, AStepEndsByItsOwnDeadlineHoweverLongTheyCompute) {
  OpenSessionRequest order;
  order.step_deadline = std::chrono::seconds(60);
  Start(MakeTestPlan(1, {"a"}, kLl), order);
  Pump();
  const TestBatch batch(3, 4);
  StepRequest request = batch.Request();
  request.deadline = std::chrono::seconds(1);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(request));
  clock_.Advance(std::chrono::milliseconds(999));
  Pump();
  EXPECT_THAT(DoneStatus(runner_->IsDone(ticket)), ::testing::Not(testing::IsOk()));

  clock_.Advance(std::chrono::milliseconds(1));
  Pump();

  EXPECT_THAT(Take(ticket), FailsWith(absl::StatusCode::kUnavailable, Reason::kStepDeadline));
}

// A step of any number of chunks, beside other sessions that fill the device's queue.
TEST_F(OwnExpertsTest, AFullQueueMakesChunksWaitAndNoStepFail) {
  OpenSessionRequest order;
  order.max_tokens = 2'000;
  Start(MakeTestPlan(1, {"a"}, DispatchMode::kNormal), order);
  Pump();
  const TestBatch batch(2'000, 4);
  experts_.queue_max = 0;
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  for (int i = 0; i < 10; ++i) Pump();
  EXPECT_TRUE(experts_.started.empty());
  EXPECT_THAT(DoneStatus(runner_->IsDone(ticket)), ::testing::Not(testing::IsOk()));

  experts_.queue_max = 1;
  for (int i = 0; i < 4; ++i) Pump();
  EXPECT_EQ(experts_.running, 1);
  experts_.queue_max = 64;
  for (int i = 0; i < 4; ++i) Pump();
  EXPECT_EQ(experts_.running, 2) << "the queue is for other sessions too";
  experts_.done = true;
  for (int i = 0; i < 2000 && !*runner_->IsDone(ticket); ++i) Pump();

  SY_EXPECT_OK(Take(ticket));
  EXPECT_GT(experts_.started.size(), 300U);
  EXPECT_EQ(experts_.most_running, 2);
  EXPECT_EQ(experts_.running, 0);
}

TEST_F(OwnExpertsTest, AStepThatEndsWhileItWaitsForTheQueueLeavesNothing) {
  Start(MakeTestPlan(1, {"a"}, kLl));
  Pump();
  experts_.queue_max = 0;
  const TestBatch batch(3, 4);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  clock_.Advance(std::chrono::seconds(2));
  Pump();
  EXPECT_THAT(Take(ticket), FailsWith(absl::StatusCode::kUnavailable, Reason::kStepDeadline));

  experts_.queue_max = 64;
  experts_.done = true;
  Pump();
  EXPECT_TRUE(experts_.started.empty());
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket next, Submit(batch.Request()));
  Pump();
  SY_EXPECT_OK(Take(next));
}

}  // namespace
}  // namespace switchyard
