#include "client/gateway_session.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "gtest/gtest.h"

#include "core/rng.h"
#include "tests/client/scripted_gateway.h"
#include "tests/testing/scripted_worker.h"
#include "tests/testing/status_matchers.h"
#include "worker/device/cpu/cpu_backend.h"

namespace switchyard {
namespace {

using testing::FailsWith;

constexpr std::int32_t kHidden = testing::ScriptedGateway::kHidden;

class GatewaySessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SeededRng rng(5);
    for (Bf16& value : x_) value = FloatToBf16(static_cast<float>(rng.Uniform() - 0.5));
    for (std::size_t i = 0; i < ids_.size(); ++i) ids_[i] = static_cast<std::int32_t>(i % 2);
    y_.assign(y_.size(), std::numeric_limits<float>::quiet_NaN());
  }
  absl::StatusOr<std::unique_ptr<MoeSession>> Open() {
    auto opened = OpenGatewaySession({.steps = &gateway_,
                                      .sessions = &channel_,
                                      .device = device_.get(),
                                      .clock = &clock_,
                                      .timeout = std::chrono::seconds(2)},
                                     {});
    if (!opened.ok()) return opened.status();
    EXPECT_EQ(opened->worker_id, "w0");
    return std::move(opened->session);
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
  testing::ScriptedChannel channel_;
  SteadyClock clock_;
  std::unique_ptr<DeviceBackend> device_ = *CpuBackend::Create({.kernel_family = "portable_fp32"});
  std::vector<Bf16> x_ = std::vector<Bf16>(3 * (kHidden + 4));
  std::vector<std::int32_t> ids_ = std::vector<std::int32_t>(6);
  std::vector<float> weights_ = std::vector<float>(6, 0.5F);
  std::vector<float> y_ = std::vector<float>(3 * (kHidden + 1));
};

TEST_F(GatewaySessionTest, SendsDenseRowsAndWritesYWithTheCallersStrides) {
  SY_ASSERT_OK_AND_ASSIGN(auto session, Open());

  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(Request()));
  ASSERT_EQ(gateway_.taken.size(), 1U);
  EXPECT_EQ(gateway_.taken[0].x.size(), 3 * kHidden * sizeof(Bf16));
  gateway_.Answer(gateway_.taken[0], 2.0F);

  SY_ASSERT_OK(session->Wait(ticket));
  for (std::size_t t = 0; t < 3; ++t) {
    for (std::size_t i = 0; i < kHidden; ++i) {
      EXPECT_EQ(y_[t * (kHidden + 1) + i], 2.0F * Bf16ToFloat(x_[t * (kHidden + 4) + i]));
    }
    EXPECT_TRUE(std::isnan(y_[t * (kHidden + 1) + kHidden]));  // the gap stays untouched
  }
}

TEST_F(GatewaySessionTest, AnswersInAnyOrderGoToTheirOwnSteps) {
  SY_ASSERT_OK_AND_ASSIGN(auto session, Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto one, session->Submit(Request()));
  StepRequest other = Request();
  std::vector<float> second(y_.size());
  other.y = second.data();
  SY_ASSERT_OK_AND_ASSIGN(const auto two, session->Submit(other));

  gateway_.Answer(gateway_.taken[1], 3.0F);
  SY_ASSERT_OK_AND_ASSIGN(const bool first_done, session->Done(one));
  EXPECT_FALSE(first_done);
  gateway_.Answer(gateway_.taken[0], 1.0F);

  SY_EXPECT_OK(session->Wait(two));
  SY_EXPECT_OK(session->Wait(one));
  EXPECT_EQ(y_[0], Bf16ToFloat(x_[0]));
  EXPECT_EQ(second[0], 3.0F * Bf16ToFloat(x_[0]));
}

TEST_F(GatewaySessionTest, KeepsTheCreditsThatWereGranted) {
  SY_ASSERT_OK_AND_ASSIGN(auto session, Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto one, session->Submit(Request()));
  SY_ASSERT_OK(session->Submit(Request()));

  EXPECT_THAT(session->Submit(Request()),
              FailsWith(absl::StatusCode::kResourceExhausted, Reason::kNoCredits));

  gateway_.Answer(gateway_.taken[0], 1.0F);
  SY_ASSERT_OK(session->Wait(one));
  SY_EXPECT_OK(session->Submit(Request()));
}

TEST_F(GatewaySessionTest, RefusesBadInputBeforeSendingIt) {
  SY_ASSERT_OK_AND_ASSIGN(auto session, Open());
  StepRequest request = Request();
  request.layer = LayerId{4};
  EXPECT_THAT(session->Submit(request),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
  request = Request();
  request.top_k = 3;
  EXPECT_THAT(session->Submit(request),
              FailsWith(absl::StatusCode::kInvalidArgument, Reason::kBadTopK));
  EXPECT_TRUE(gateway_.taken.empty());
}

TEST_F(GatewaySessionTest, AWrongAnswerSizeIsAnErrorAndYStaysUntouched) {
  SY_ASSERT_OK_AND_ASSIGN(auto session, Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(Request()));

  const std::vector<std::byte> shorter(8);
  gateway_.sink_->OnStep(gateway_.taken[0].step, absl::OkStatus(), shorter);

  EXPECT_THAT(session->Wait(ticket), FailsWith(absl::StatusCode::kInternal, Reason::kFrame));
  EXPECT_TRUE(std::isnan(y_[0]));
}

TEST_F(GatewaySessionTest, TheEndOfTheStreamFailsWhatIsOutstanding) {
  SY_ASSERT_OK_AND_ASSIGN(auto session, Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(Request()));
  std::thread ender([this] {
    gateway_.sink_->OnEnded(
        MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gateway gone"));
  });

  EXPECT_THAT(session->Wait(ticket),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  ender.join();
  EXPECT_THAT(session->Submit(Request()),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST_F(GatewaySessionTest, ATicketIsGoodOnce) {
  SY_ASSERT_OK_AND_ASSIGN(auto session, Open());
  SY_ASSERT_OK_AND_ASSIGN(const auto ticket, session->Submit(Request()));
  gateway_.Answer(gateway_.taken[0], 1.0F);
  SY_ASSERT_OK(session->Wait(ticket));

  EXPECT_THAT(session->Wait(ticket),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kStageOrder));
}

TEST_F(GatewaySessionTest, SaysWhyTheGatewayRefused) {
  gateway_.refuse = MakeError(absl::StatusCode::kNotFound, Reason::kUnknownModel, "no such model");

  EXPECT_THAT(Open(), FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
}

TEST_F(GatewaySessionTest, AWorkerThatDoesNotKnowTheSessionHasCountedNothing) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open());
  channel_.counters =
      MakeError(absl::StatusCode::kNotFound, Reason::kUnknownSession, "no attachment here");

  SY_ASSERT_OK_AND_ASSIGN(const SessionReport report, session->Report(std::chrono::seconds(1)));

  ASSERT_EQ(report.workers.size(), 1U);
  EXPECT_EQ(report.workers[0].worker_id, "w0");
  EXPECT_TRUE(report.workers[0].attachments.empty());
}

TEST_F(GatewaySessionTest, AWorkerThatCannotBeAskedFailsTheReport) {
  SY_ASSERT_OK_AND_ASSIGN(const auto session, Open());
  channel_.counters = MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "gone");

  EXPECT_THAT(session->Report(std::chrono::seconds(1)),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

}  // namespace
}  // namespace switchyard
