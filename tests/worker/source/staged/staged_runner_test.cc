// Steps whose tensors lie on a device, over a runner that takes memory of the host: what waits for
// what, what is given back when, and which memory is refused. tests/e2e/device_tensors_test.cc runs
// whole sessions.
#include "worker/source/staged/staged_runner.h"

#include <cmath>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/base/error.h"
#include "tests/testing/fake_runner.h"
#include "tests/testing/held_stream.h"
#include "tests/testing/late_device.h"
#include "tests/testing/scripted_gateway.h"
#include "tests/testing/status_matchers.h"
#include "worker/registry/device_registry.h"
#include "worker/source/gateway/gateway_runner.h"

namespace switchyard {
namespace {

using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;
using testing::HeldStream;
using testing::LateDevice;

constexpr std::size_t kHidden = testing::ScriptedGateway::kHidden;
constexpr std::size_t kTopK = 2;
constexpr std::size_t kGap = 5;  // between rows, in elements
constexpr float kUntouched = -7;
constexpr Duration kDeadline = std::chrono::seconds(5);

// A batch with gaps between all rows; x[t][i] counts up.
struct Tensors {
  explicit Tensors(std::int32_t count) : tokens(count) {
    const auto rows = static_cast<std::size_t>(count);
    x.assign(rows * (kHidden + kGap), FloatToBf16(std::numeric_limits<float>::quiet_NaN()));
    ids.assign(rows * (kTopK + kGap), 99);
    weights.assign(rows * (kTopK + kGap), std::numeric_limits<float>::quiet_NaN());
    y.assign(rows * (kHidden + kGap), kUntouched);
    for (std::size_t t = 0; t < rows; ++t) {
      for (std::size_t i = 0; i < kHidden; ++i) {
        x[t * (kHidden + kGap) + i] = FloatToBf16(static_cast<float>(t * kHidden + i));
      }
      for (std::size_t k = 0; k < kTopK; ++k) {
        ids[t * (kTopK + kGap) + k] = static_cast<std::int32_t>(k);
        weights[t * (kTopK + kGap) + k] = 0.5F;
      }
    }
  }
  StepRequest Request() {
    return {.layer = LayerId{3},
            .tokens = tokens,
            .x = x.data(),
            .x_stride = kHidden + kGap,
            .ids = ids.data(),
            .ids_stride = kTopK + kGap,
            .weights = weights.data(),
            .weights_stride = kTopK + kGap,
            .top_k = kTopK,
            .y = y.data(),
            .y_stride = kHidden + kGap,
            .stream = &engine_stream};
  }
  // y = factor * x, and nothing between the rows.
  void ExpectY(float factor) const {
    for (std::size_t i = 0; i < y.size(); ++i) {
      const bool gap = i % (kHidden + kGap) >= kHidden;
      ASSERT_EQ(y[i], gap ? kUntouched : factor * Bf16ToFloat(x[i])) << i;
    }
  }
  void ExpectUntouched() const {
    for (const float value : y) ASSERT_EQ(value, kUntouched);
  }

  std::int32_t tokens;
  int engine_stream = 0;
  std::vector<Bf16> x;
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
  std::vector<float> y;
};

class StagedRunnerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SY_ASSERT_OK_AND_ASSIGN(cpu_, MakeDevice("cpu:kernel_family=portable_fp32"));
    // It says of all memory that it is its own.
    SY_ASSERT_OK_AND_ASSIGN(device_, LateDevice::Create({.host_access = true}));
  }
  std::unique_ptr<HeldStream> Held() {
    auto stream = std::make_unique<HeldStream>(*cpu_->MakeStream({}));
    stream->Hold();
    return stream;
  }
  // Over a gateway that the test answers for.
  void Open(DeviceBackend* device = nullptr, bool strict = false) {
    auto reads = Held();
    auto writes = Held();
    reads_ = reads.get();
    writes_ = writes.get();
    OpenSessionRequest request;
    request.strict = strict;
    runner_ = std::make_unique<StagedRunner>(StagedRunnerOptions{
        .inner = std::make_unique<GatewayRunner>(GatewayRunnerOptions{
            .steps = &gateway_, .gateways = {"g0"}, .request = request, .wake = [] {}}),
        .device = device == nullptr ? device_.get() : device,
        .device_name = "late:0",
        .reads = std::move(reads),
        .writes = std::move(writes),
        .steps_max = 2});
    SY_ASSERT_OK(runner_->Start(now_));
    ASSERT_EQ(runner_->Poll(now_).state, RunnerProgress::State::kReady);
  }
  bool IsDone(const StepTicket& ticket) { return *runner_->IsDone(ticket); }
  // The device has read the inputs, and the gateway has them.
  void Read() {
    reads_->ReleaseAll();
    EXPECT_TRUE(runner_->Poll(now_).worked);
  }

  TimePoint now_{std::chrono::seconds(100)};
  testing::ScriptedGateway gateway_;
  std::unique_ptr<DeviceBackend> cpu_;
  std::unique_ptr<LateDevice> device_;
  std::unique_ptr<StagedRunner> runner_;
  HeldStream* reads_ = nullptr;
  HeldStream* writes_ = nullptr;
};

TEST_F(StagedRunnerTest, AStepGoesOnByTheDevicesEventsAndNothingWaits) {
  Open();
  Tensors tensors(3);

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, runner_->Submit(tensors.Request(), now_));
  EXPECT_THAT(reads_->waited_for(), ElementsAre(&tensors.engine_stream));
  EXPECT_TRUE(runner_->awaits_device());
  runner_->Poll(now_);
  EXPECT_TRUE(gateway_.taken.empty()) << "the inputs have not been read";

  Read();
  ASSERT_EQ(gateway_.taken.size(), 1U);
  EXPECT_THAT(gateway_.taken[0].ids, ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_TRUE(runner_->awaits_device()) << "the answer has to be written";
  EXPECT_EQ(runner_->Status().steps_in_flight, 1U);
  EXPECT_FALSE(IsDone(ticket));
  gateway_.Answer(gateway_.taken[0], 2);
  EXPECT_TRUE(runner_->Poll(now_).worked);
  EXPECT_FALSE(IsDone(ticket));
  tensors.ExpectUntouched();
  writes_->ReleaseAll();
  EXPECT_TRUE(runner_->Poll(now_).worked);

  EXPECT_TRUE(IsDone(ticket));
  EXPECT_FALSE(runner_->awaits_device());
  SY_EXPECT_OK(runner_->Take(ticket, now_));
  tensors.ExpectY(2);
  EXPECT_EQ(reads_->waits() + writes_->waits(), 0);
  EXPECT_THAT(runner_->Take(ticket, now_),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
}

TEST_F(StagedRunnerTest, AnswersDoNotWaitForTheInputsOfLaterSteps) {
  Open();
  Tensors first(1);
  Tensors second(1);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket one, runner_->Submit(first.Request(), now_));
  Read();
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket two, runner_->Submit(second.Request(), now_));
  EXPECT_THAT(runner_->Submit(first.Request(), now_),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));

  gateway_.Answer(gateway_.taken[0], 3);
  runner_->Poll(now_);
  writes_->ReleaseAll();
  runner_->Poll(now_);

  EXPECT_TRUE(IsDone(one));
  EXPECT_FALSE(IsDone(two));
  SY_EXPECT_OK(runner_->Take(one, now_));
  first.ExpectY(3);
  EXPECT_THAT(runner_->Take(two, now_),
              FailsWith(absl::StatusCode::kCancelled, Reason::kUnspecified));
  EXPECT_EQ(reads_->waits(), 1) << "x is its caller's again";
  second.ExpectUntouched();
}

TEST_F(StagedRunnerTest, TheDeadlineCountsFromSubmitAndAnOverdueStepWaitsForTheDevice) {
  Open();
  Tensors tensors(1);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket late, runner_->Submit(tensors.Request(), now_));
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket behind, runner_->Submit(tensors.Request(), now_));
  EXPECT_LE(runner_->Poll(now_).wake_at, now_ + kDeadline);
  reads_->ReleaseOne();
  now_ += std::chrono::seconds(2);
  runner_->Poll(now_);
  ASSERT_EQ(gateway_.taken.size(), 1U);
  EXPECT_EQ(gateway_.taken[0].deadline, std::chrono::seconds(3)) << "what is left of 5 s";

  now_ += std::chrono::seconds(3);
  EXPECT_TRUE(runner_->Poll(now_).worked);
  EXPECT_FALSE(IsDone(behind)) << "the device may still read its inputs";
  Read();
  EXPECT_EQ(gateway_.taken.size(), 1U);

  const absl::Status why = runner_->Take(behind, now_);
  EXPECT_THAT(why, FailsWith(absl::StatusCode::kUnavailable, Reason::kStepDeadline));
  EXPECT_THAT(std::string(why.message()), HasSubstr("stream"));
  EXPECT_FALSE(IsDone(late)) << "its gateway has some time more";
}

TEST_F(StagedRunnerTest, ErrorsOfTheDeviceAndOfTheInnerRunnerAreTheStepsResult) {
  Open(nullptr, /*strict=*/true);
  Tensors tensors(1);
  const absl::Status fault = MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gone");

  reads_->FailNext(fault);
  SY_ASSERT_OK_AND_ASSIGN(StepTicket ticket, runner_->Submit(tensors.Request(), now_));
  Read();
  EXPECT_EQ(runner_->Take(ticket, now_), fault);
  EXPECT_TRUE(gateway_.taken.empty());

  SY_ASSERT_OK_AND_ASSIGN(ticket, runner_->Submit(tensors.Request(), now_));
  Read();
  gateway_.Answer(gateway_.taken.back(), 1);
  runner_->Poll(now_);
  writes_->FailNext(fault);
  writes_->ReleaseAll();
  runner_->Poll(now_);
  EXPECT_EQ(runner_->Take(ticket, now_), fault);

  tensors.x[3] = FloatToBf16(std::nanf(""));
  SY_ASSERT_OK_AND_ASSIGN(ticket, runner_->Submit(tensors.Request(), now_));
  Read();
  EXPECT_THAT(runner_->Take(ticket, now_),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kNanInput));
  tensors.ExpectUntouched();
}

TEST_F(StagedRunnerTest, CloseWaitsForTheDeviceAndNothingIsWrittenAfterwards) {
  Open();
  Tensors tensors(1);
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket running, runner_->Submit(tensors.Request(), now_));
  Read();
  SY_ASSERT_OK_AND_ASSIGN(const StepTicket reading, runner_->Submit(tensors.Request(), now_));

  runner_->Close(now_);

  EXPECT_EQ(reads_->waiting() + writes_->waiting(), 0U);
  for (const StepTicket& ticket : {running, reading}) {
    EXPECT_THAT(runner_->Take(ticket, now_),
                FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed));
  }
  EXPECT_THAT(runner_->Submit(tensors.Request(), now_),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed));
  tensors.ExpectUntouched();
}

TEST_F(StagedRunnerTest, RefusesMemoryThatTheDeviceDoesNotReachAndNamesTheTensor) {
  Tensors tensors(1);
  SY_ASSERT_OK_AND_ASSIGN(const auto strict, LateDevice::Create({}));
  Open(strict.get());
  const absl::Status pageable = runner_->Submit(tensors.Request(), now_).status();
  EXPECT_THAT(pageable, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(std::string(pageable.message()), HasSubstr("x is pageable memory"));
  EXPECT_EQ(MetadataOf(pageable).at("field"), "x");
  EXPECT_EQ(MetadataOf(pageable).at("want"), "late:0");

  SY_ASSERT_OK_AND_ASSIGN(
      const auto other,
      LateDevice::Create({.host_access = true, .foreign_memory = tensors.weights.data()}));
  Open(other.get());
  const absl::Status foreign = runner_->Submit(tensors.Request(), now_).status();
  EXPECT_THAT(foreign, FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadRequest));
  EXPECT_THAT(std::string(foreign.message()), HasSubstr("weights"));

  Open();
  StepRequest wrong = tensors.Request();
  wrong.layer = LayerId{4};
  EXPECT_THAT(runner_->Submit(wrong, now_),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
  wrong = tensors.Request();
  wrong.y_stride = 1;
  wrong.tokens = 2;
  EXPECT_THAT(runner_->Submit(wrong, now_),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadShape));
  EXPECT_EQ(reads_->waiting(), 0U);
}

TEST_F(StagedRunnerTest, AStepWithoutTokensNeedsNoMemoryAndNoStream) {
  Open();
  gateway_.answers = {absl::OkStatus()};
  SY_ASSERT_OK_AND_ASSIGN(
      const StepTicket ticket,
      runner_->Submit({.layer = LayerId{3}, .tokens = 0, .top_k = kTopK}, now_));
  Read();
  EXPECT_TRUE(reads_->waited_for().empty());
  EXPECT_TRUE(IsDone(ticket));
  SY_EXPECT_OK(runner_->Take(ticket, now_));
}

TEST_F(StagedRunnerTest, ADeviceThatCannotFollowOtherStreamsRefusesTheStep) {
  testing::FakeSteps steps(
      [](const SessionGrant&, const StepRequest&) { return absl::OkStatus(); });
  SessionGrant grant;
  grant.plan.shape = {.hidden = kHidden, .intermediate = 8, .experts = 4, .top_k = kTopK};
  StagedRunner runner({.inner = std::make_unique<testing::FakeRunner>(
                           &steps, grant, [] {}, nullptr),
                       .device = device_.get(),
                       .device_name = "late:0",
                       .reads = *cpu_->MakeStream({}),
                       .writes = *cpu_->MakeStream({})});
  Tensors tensors(9);

  EXPECT_THAT(runner.Submit(tensors.Request(), now_),
              FailsWith(absl::StatusCode::kUnimplemented, Reason::kUnsupported));

  EXPECT_FALSE(runner.awaits_device());
  EXPECT_EQ(steps.submitted, 0);
}

// Over a runner that takes x and y where they are, from 3 tokens on.
class LargeStepsTest : public StagedRunnerTest {
 protected:
  void OpenLarge(testing::FakeRunner::Refuse refuse) {
    SessionGrant grant;
    grant.plan.shape = {.hidden = kHidden, .intermediate = 8, .experts = 4, .top_k = kTopK};
    steps_.device_tokens_min = 3;
    auto reads = Held();
    auto writes = Held();
    reads_ = reads.get();
    writes_ = writes.get();
    runner_ = std::make_unique<StagedRunner>(
        StagedRunnerOptions{.inner = std::make_unique<testing::FakeRunner>(
                                &steps_, grant, [] {}, std::move(refuse)),
                            .device = device_.get(),
                            .device_name = "late:0",
                            .reads = std::move(reads),
                            .writes = std::move(writes)});
  }
  // y = 4 * x, read and written with the strides that the runner was given.
  static absl::Status Compute(const StepRequest& request) {
    for (std::int32_t t = 0; t < request.tokens; ++t) {
      EXPECT_EQ(request.ids[t * request.ids_stride + 1], 1);
      EXPECT_EQ(request.weights[t * request.weights_stride], 0.5F);
      for (std::size_t i = 0; i < kHidden; ++i) {
        static_cast<float*>(request.y)[static_cast<std::size_t>(t * request.y_stride) + i] =
            4 * Bf16ToFloat(request.x[static_cast<std::size_t>(t * request.x_stride) + i]);
      }
    }
    return absl::OkStatus();
  }

  testing::FakeSteps steps_{
      [](const SessionGrant&, const StepRequest& request) { return Compute(request); }};
};

TEST_F(LargeStepsTest, LeaveXAndYWhereTheyAreAndSmallOnesDoNot) {
  std::vector<StepRequest> taken;
  OpenLarge([&](const StepRequest& request) {
    taken.push_back(request);
    return absl::OkStatus();
  });
  for (const std::int32_t tokens : {2, 3, 40}) {
    Tensors tensors(tokens);
    taken.clear();
    SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, runner_->Submit(tensors.Request(), now_));
    runner_->Poll(now_);
    EXPECT_TRUE(taken.empty()) << "x is complete once the device has read the routing";
    reads_->ReleaseAll();
    runner_->Poll(now_);
    ASSERT_EQ(taken.size(), 1U);
    EXPECT_EQ(taken[0].stream, nullptr);
    EXPECT_EQ(taken[0].on_device, tokens >= 3);
    EXPECT_EQ(taken[0].x == tensors.x.data(), tokens >= 3);
    EXPECT_EQ(taken[0].y == tensors.y.data(), tokens >= 3);
    EXPECT_NE(taken[0].ids, tensors.ids.data());
    EXPECT_NE(taken[0].weights, tensors.weights.data());
    EXPECT_EQ(writes_->waiting() > 0, tokens < 3);
    writes_->ReleaseAll();
    runner_->Poll(now_);
    EXPECT_TRUE(IsDone(ticket));
    SY_EXPECT_OK(runner_->Take(ticket, now_));
    tensors.ExpectY(4);
  }
}

TEST_F(LargeStepsTest, AStepThatTheRunnerTakesNoMorePassesThroughTheHost) {
  std::vector<bool> tried;
  OpenLarge([&](const StepRequest& request) -> absl::Status {
    tried.push_back(request.on_device);
    if (!request.on_device) return absl::OkStatus();
    return MakeError(absl::StatusCode::kUnimplemented, Reason::kUnsupported, "a ring has gone");
  });
  Tensors tensors(7);

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, runner_->Submit(tensors.Request(), now_));
  Read();
  EXPECT_FALSE(IsDone(ticket));
  Read();
  writes_->ReleaseAll();
  runner_->Poll(now_);

  EXPECT_THAT(tried, ElementsAre(true, false));
  ASSERT_TRUE(IsDone(ticket));
  SY_EXPECT_OK(runner_->Take(ticket, now_));
  tensors.ExpectY(4);
  EXPECT_EQ(reads_->waits() + writes_->waits(), 0);
}

TEST_F(LargeStepsTest, OtherErrorsOfTheRunnerAreTheStepsResult) {
  const absl::Status lost = MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gone");
  OpenLarge([&](const StepRequest&) { return lost; });
  Tensors tensors(7);

  SY_ASSERT_OK_AND_ASSIGN(const StepTicket ticket, runner_->Submit(tensors.Request(), now_));
  Read();

  ASSERT_TRUE(IsDone(ticket));
  EXPECT_EQ(runner_->Take(ticket, now_), lost);
  tensors.ExpectUntouched();
}

}  // namespace
}  // namespace switchyard
