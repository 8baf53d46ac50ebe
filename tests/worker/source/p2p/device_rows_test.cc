// Steps whose x and y lie on the device of the tensors: which steps it takes, that it encodes and
// sums all of their rows and the host's stream none, and that nothing of one kind of its work waits
// for the other.
#include <cstring>
#include <limits>

#include "gmock/gmock.h"

#include "tests/worker/source/p2p/runner_fixture.h"

namespace switchyard {
namespace {

using testing::FailsWith;
using testing::kHidden;
using testing::kTopK;
using testing::LateDevice;
using testing::MakeTestPlan;
using testing::RunnerFixture;
using testing::TestBatch;

constexpr DispatchMode kLl = DispatchMode::kLowLatency;
constexpr DispatchMode kNm = DispatchMode::kNormal;
constexpr LayerId kLayer{0};

StepRequest OnDevice(const TestBatch& batch) {
  StepRequest request = batch.Request();
  request.on_device = true;
  return request;
}

class DeviceRowsTest : public RunnerFixture {
 protected:
  void Open(const Plan& plan, bool maps = true, std::size_t bytes_min = 0,
            const OpenSessionRequest& request = {}) {
    runner_.reset();
    SY_ASSERT_OK_AND_ASSIGN(
        tensors_, LateDevice::Create(
                      {.host_access = true, .maps_host = maps, .source_bytes_min = bytes_min}));
    OpenReady(plan, request);
  }
  std::int32_t TokensMin() { return runner_->LimitsOf(kLayer)->device_tokens_min; }
  // Lets the device work, and answers, until the step is done.
  void Finish(const Plan& plan, const StepTicket& ticket) {
    for (int turn = 0; turn < 10'000 && !IsDone(ticket); ++turn) {
      tensor_encodes_->ReleaseAll();
      tensor_sums_->ReleaseAll();
      for (std::size_t w = 0; w < plan.workers.size(); ++w) AnswerOne(plan, w);
      Pump();
    }
    ASSERT_TRUE(IsDone(ticket));
  }
};

TEST_F(DeviceRowsTest, TheDeviceEncodesAndSumsWithTheBitsOfStepsInMemoryOfTheHost) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const DispatchMode mode = seed % 2 == 0 ? kLl : kNm;
    const Plan plan = MakeTestPlan(1, {"a", "b", "c"}, mode);
    Open(plan);
    stream_->Hold();  // of the host: it must have nothing to do
    tensor_encodes_->Hold();
    tensor_sums_->Hold();
    const TestBatch batch(static_cast<std::int32_t>(7 * seed), seed);

    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(OnDevice(batch)));
    Finish(plan, ticket);

    SY_ASSERT_OK(Take(ticket));
    EXPECT_EQ(batch.y, mode == kLl ? batch.ExpectedLowLatency() : batch.ExpectedNormal(plan));
    EXPECT_EQ(stream_->waiting(), 0U) << "seed " << seed;
    EXPECT_EQ(stream_->waits() + tensor_encodes_->waits() + tensor_sums_->waits(), 0);
    EXPECT_EQ(runner_->Status().times.device_steps, 1U);
  }
}

TEST_F(DeviceRowsTest, StepsOfBothKindsRunBesideEachOther) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kLl);
  Open(plan);
  tensor_encodes_->Hold();
  tensor_sums_->Hold();
  // One chunk for each worker, so that both have credits.
  const TestBatch on_device(1, 1);
  const TestBatch on_host(1, 2);

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket first, Submit(OnDevice(on_device)));
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket second, Submit(on_host.Request()));
  for (int turn = 0; turn < 100 && !IsDone(second); ++turn) {
    for (std::size_t w = 0; w < 2; ++w) AnswerOne(plan, w);
    Pump();
    tensor_encodes_->ReleaseOne();
  }
  EXPECT_TRUE(IsDone(second));
  EXPECT_FALSE(IsDone(first)) << "its sum is with the device";
  Finish(plan, first);

  SY_ASSERT_OK(Take(second));
  SY_ASSERT_OK(Take(first));
  EXPECT_EQ(on_device.y, on_device.ExpectedLowLatency());
  EXPECT_EQ(on_host.y, on_host.ExpectedLowLatency());
  EXPECT_EQ(runner_->Status().times.device_steps, 1U);
  EXPECT_EQ(runner_->Status().times.steps, 2U);
}

TEST_F(DeviceRowsTest, AnswersAreSummedWhileRowsOfALaterStepAreEncoded) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  Open(plan);
  const TestBatch early(1, 5);
  const TestBatch later(1, 6);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket first, Submit(OnDevice(early)));
  Pump();
  tensor_encodes_->Hold();
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket second, Submit(OnDevice(later)));

  ASSERT_TRUE(AnswerOne(plan, 0));
  Pump();

  EXPECT_TRUE(IsDone(first));
  EXPECT_GT(tensor_encodes_->waiting(), 0U);
  SY_ASSERT_OK(Take(first));
  EXPECT_EQ(early.y, early.ExpectedLowLatency());
  Finish(plan, second);
  SY_ASSERT_OK(Take(second));
  EXPECT_EQ(later.y, later.ExpectedLowLatency());
}

// Goal: the lists of sums have a bound. Method: rows of more tokens than a sum takes come together.
TEST_F(DeviceRowsTest, ASumTakesSoManyTermsAndTheNextOneTheRest) {
  const Plan plan = MakeTestPlan(1, {"a"}, kNm);
  Open(plan);
  constexpr auto kTokens = static_cast<std::int32_t>(2 * Step::kDeviceTermsMax + 10);
  TestBatch batch(kTokens, 3);
  // No experts, and so no rows: all tokens can be summed at once.
  std::ranges::fill(batch.ids, -1);
  tensor_sums_->Hold();

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(OnDevice(batch)));
  for (const bool done : {false, false, true}) {
    EXPECT_EQ(tensor_sums_->waiting(), 2U) << "a sum and its event";
    tensor_sums_->ReleaseAll();
    Pump();
    EXPECT_EQ(IsDone(ticket), done);
  }

  SY_ASSERT_OK(Take(ticket));
  EXPECT_EQ(batch.y, std::vector<float>(batch.y.size(), 0.0F));
}

TEST_F(DeviceRowsTest, AnErrorOfTheDeviceIsTheStepsResultAndTheNextOneIsServed) {
  const Plan plan = MakeTestPlan(1, {"a"}, kLl);
  const absl::Status fault =
      MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "the device has died");
  for (const bool at_sum : {false, true}) {
    Open(plan);
    const TestBatch batch(1, 5);
    (at_sum ? tensor_sums_ : tensor_encodes_)->FailNext(fault);
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(OnDevice(batch)));
    Finish(plan, ticket);
    EXPECT_EQ(Take(ticket), fault) << at_sum;
    EXPECT_EQ(runner_->Status().attachments[0].credits_free, 2U);

    const TestBatch next(1, 6);
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket after, Submit(OnDevice(next)));
    Finish(plan, after);
    SY_ASSERT_OK(Take(after));
    EXPECT_EQ(next.y, next.ExpectedLowLatency());
  }
}

// What takes memory away from the device at once waits for both of its streams.
TEST_F(DeviceRowsTest, ALostLinkAndAClosedSessionLeaveNothingWithTheDevice) {
  const Plan plan = MakeTestPlan(1, {"a", "b"}, kLl);
  for (const bool close : {false, true}) {
    Open(plan);
    const TestBatch summed(1, 4);
    const TestBatch encoded(4, 7);
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket first, Submit(OnDevice(summed)));
    tensor_sums_->Hold();
    for (std::size_t w = 0; w < 2; ++w) AnswerOne(plan, w);
    Pump();
    tensor_encodes_->Hold();
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket second, Submit(OnDevice(encoded)));
    ASSERT_GT(tensor_sums_->waiting(), 0U);
    ASSERT_GT(tensor_encodes_->waiting(), 0U);

    if (close) {
      runner_->Close(clock_.Now());
    } else {
      transport_.BreakLink(LinkOf(plan, 0));
      Pump();
      EXPECT_EQ(TokensMin(), 0) << "the ring has gone";
    }

    EXPECT_EQ(tensor_sums_->waiting() + tensor_encodes_->waiting(), 0U);
    EXPECT_FALSE(Take(second).ok());
    EXPECT_TRUE(IsDone(first));
  }
}

TEST_F(DeviceRowsTest, TakesStepsFromTheDevicesSizeOnAndOnlyWithAllRingsMapped) {
  constexpr std::size_t kRow = kHidden * sizeof(Bf16);
  Open(MakeTestPlan(1, {"a"}, kLl), true, 10 * kTopK * kRow);
  EXPECT_EQ(TokensMin(), 10) << "a row for each expert";
  Open(MakeTestPlan(1, {"a", "b"}, kNm), true, 10 * 2 * kRow);
  EXPECT_EQ(TokensMin(), 10) << "a row for each worker";
  Open(MakeTestPlan(1, {"a"}, kNm), true, 0);
  EXPECT_EQ(TokensMin(), 1);
  Open(MakeTestPlan(1, {"a"}, kNm), true, std::numeric_limits<std::size_t>::max());
  EXPECT_EQ(TokensMin(), std::numeric_limits<std::int32_t>::max());
  // The host looks for NaN.
  OpenSessionRequest strict;
  strict.strict = true;
  Open(MakeTestPlan(1, {"a"}, kNm), true, 0, strict);
  EXPECT_EQ(TokensMin(), 0);

  const Plan plan = MakeTestPlan(1, {"a"}, kNm);
  Open(plan, /*maps=*/false);
  EXPECT_EQ(TokensMin(), 0);
  const TestBatch batch(3, 1);
  EXPECT_THAT(Submit(OnDevice(batch)),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, Submit(batch.Request()));
  AnswerAll(plan);
  SY_ASSERT_OK(Take(ticket));
  EXPECT_EQ(batch.y, batch.ExpectedNormal(plan));
  EXPECT_EQ(runner_->Status().times.device_steps, 0U);
}

}  // namespace
}  // namespace switchyard
