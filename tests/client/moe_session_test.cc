// A session's report: what it asks of the workers. Its steps are tested in
// tests/e2e/loopback_test.cc and tests/worker/source/gateway.
#include "client/moe_session.h"

#include <poll.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "client/client.h"
#include "core/base/error.h"
#include "tests/testing/scripted_gateway.h"
#include "tests/testing/scripted_worker.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using testing::FailsWith;
using ::testing::HasSubstr;

// A session through a scripted gateway, whose plan has the workers w2, w0 and w1. The client owns
// gateway and channel.
void HangFor(Duration time) {
  ::poll(nullptr, 0,
         static_cast<int>(std::chrono::duration_cast<std::chrono::milliseconds>(time).count()));
}

class MoeSessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ClientParts parts;
    auto channel = std::make_unique<CountingChannel>();
    channel_ = channel.get();
    parts.sessions = std::move(channel);
    auto gateway = std::make_unique<testing::ScriptedGateway>();
    gateway_ = gateway.get();
    gateway->workers = {"w2", "w0", "w1"};
    parts.steps = std::move(gateway);
    ClientOptions options;
    options.gateway = "scripted";
    client_ = Client::Over(options, std::move(parts));
    SY_ASSERT_OK_AND_ASSIGN(session_, client_->Open({}));
  }

  // Answers with the endpoint as the worker's name.
  class CountingChannel final : public SessionChannel {
   public:
    absl::StatusOr<SessionGrant> OpenSession(const OpenSessionRequest& request,
                                             Duration timeout) override {
      return rest_.OpenSession(request, timeout);
    }
    absl::Status CloseSession(SessionId session, Duration timeout) override {
      return rest_.CloseSession(session, timeout);
    }
    std::unique_ptr<WatchStream> Watch(const WatchRequest& request, WatchSink* sink) override {
      return rest_.Watch(request, sink);
    }
    std::unique_ptr<AttachStream> Attach(const std::string& endpoint, const AttachRequest& request,
                                         AttachSink* sink) override {
      return rest_.Attach(endpoint, request, sink);
    }
    absl::StatusOr<SessionCounters> GetCounters(const std::string& endpoint, SessionId /*session*/,
                                                Duration timeout) override {
      EXPECT_LE(timeout, seconds(3));
      if (endpoint == hanging) HangFor(timeout);
      if (endpoint == failing) return failure;
      return SessionCounters{endpoint, {}};
    }

    std::string failing;
    std::string hanging;
    absl::Status failure;

   private:
    testing::ScriptedChannel rest_;
  };

  std::vector<std::string> ReportedWorkers() {
    const auto report = session_->Report(seconds(3));
    SY_EXPECT_OK(report.status());
    std::vector<std::string> workers;
    if (!report.ok()) return workers;
    for (const SessionCounters& worker : report->workers) workers.push_back(worker.worker_id);
    return workers;
  }

  // One token for the gateway's layer.
  StepRequest Step() {
    return RequestOf({.layer = LayerId{3},
                      .hidden = testing::ScriptedGateway::kHidden,
                      .top_k = 2,
                      .x = x_,
                      .ids = ids_,
                      .weights = weights_,
                      .y = y_.data()});
  }

  std::vector<Bf16> x_ = std::vector<Bf16>(testing::ScriptedGateway::kHidden, FloatToBf16(1));
  std::vector<std::int32_t> ids_ = {0, 1};
  std::vector<float> weights_ = {0.5F, 0.5F};
  std::vector<float> y_ = std::vector<float>(testing::ScriptedGateway::kHidden, -1);
  testing::ScriptedGateway* gateway_ = nullptr;
  CountingChannel* channel_ = nullptr;
  std::unique_ptr<Client> client_;
  std::unique_ptr<MoeSession> session_;
};

TEST_F(MoeSessionTest, ReportsWorkersInTheOrderOfThePlan) {
  EXPECT_THAT(ReportedWorkers(), ::testing::ElementsAre("host-w2", "host-w0", "host-w1"));
}

TEST_F(MoeSessionTest, AWorkerThatDoesNotKnowTheSessionHasCountedNothing) {
  channel_->failing = "host-w0";
  channel_->failure =
      MakeError(absl::StatusCode::kNotFound, Reason::kUnknownSession, "no attachment here");

  EXPECT_THAT(ReportedWorkers(), ::testing::ElementsAre("host-w2", "w0", "host-w1"));
}

TEST_F(MoeSessionTest, AWorkerThatCannotBeReachedIsMarkedAndTheOthersReport) {
  channel_->failing = "host-w0";
  channel_->failure =
      MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "connection refused");

  SY_ASSERT_OK_AND_ASSIGN(const SessionReport report, session_->Report(seconds(3)));

  ASSERT_EQ(report.asked.size(), 3U);
  EXPECT_THAT(report.asked[1], FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_THAT(std::string(report.asked[1].message()), HasSubstr("counters of worker w0"));
  EXPECT_EQ(report.workers[1].worker_id, "w0");
  EXPECT_EQ(report.workers[2].worker_id, "host-w1");
  SY_EXPECT_OK(report.asked[0]);
  SY_EXPECT_OK(report.asked[2]);
}

TEST_F(MoeSessionTest, AReportTakesNoLongerThanItsTimeWhateverAWorkerDoes) {
  channel_->hanging = "host-w2";
  const SteadyClock clock;
  const TimePoint start = clock.Now();

  SY_ASSERT_OK_AND_ASSIGN(const SessionReport report,
                          session_->Report(std::chrono::milliseconds(200)));

  EXPECT_LT(clock.Now() - start, seconds(2));
  EXPECT_EQ(report.workers[1].worker_id, "host-w0");
  EXPECT_EQ(report.workers[2].worker_id, "host-w1");
}

TEST_F(MoeSessionTest, RunRepeatsAStepUntilWhatFailedItIsGone) {
  gateway_->answers = {
      MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "w1 died"),
      MakeError(absl::StatusCode::kAborted, Reason::kEpochChanged, "epoch 2 is on its way"),
      absl::OkStatus()};
  int attempts = 0;

  SY_EXPECT_OK(session_->Run(Step(), seconds(10), &attempts));

  EXPECT_EQ(attempts, 3);
  EXPECT_THAT(y_, ::testing::Each(1.0F));
  EXPECT_EQ(gateway_->taken.size(), 3U);
}

TEST_F(MoeSessionTest, RunGivesUpWithTheLastErrorWhenItsTimeHasPassed) {
  const absl::Status lost =
      MakeError(absl::StatusCode::kUnavailable, Reason::kWorkerLost, "w1 died");
  gateway_->answers = std::deque<absl::Status>(100, lost);
  int attempts = 0;

  EXPECT_THAT(session_->Run(Step(), std::chrono::milliseconds(100), &attempts),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  // Pauses of 20 and 40 ms; the next would end too late.
  EXPECT_GE(attempts, 2);
  EXPECT_LE(attempts, 3);
  EXPECT_THAT(session_->Run(Step(), Duration::zero(), &attempts),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_EQ(attempts, 1);
}

TEST_F(MoeSessionTest, RunDoesNotRepeatWhatNoRepetitionMends) {
  int attempts = 0;
  StepRequest step = Step();
  step.layer = LayerId{9};
  EXPECT_THAT(session_->Run(step, seconds(10), &attempts),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownLayer));
  EXPECT_EQ(attempts, 1);

  gateway_->answers = {
      MakeError(absl::StatusCode::kFailedPrecondition, Reason::kModelChanged, "another model")};
  EXPECT_THAT(session_->Run(Step(), seconds(10), &attempts),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kModelChanged));
  EXPECT_EQ(attempts, 1);
}

TEST_F(MoeSessionTest, RunGoesOnThroughAnotherGatewayWhenItsOwnIsGone) {
  gateway_->sink_->OnEnded(
      MakeError(absl::StatusCode::kUnavailable, Reason::kTransport, "connection reset"));
  gateway_->answers = {absl::OkStatus()};
  int attempts = 0;

  SY_EXPECT_OK(session_->Run(Step(), seconds(10), &attempts));

  EXPECT_GE(attempts, 1);
  EXPECT_THAT(gateway_->asked, ElementsAre("scripted", "host-w2"));
}

TEST_F(MoeSessionTest, ClosesOnce) {
  SY_EXPECT_OK(session_->Close());
  SY_EXPECT_OK(session_->Close());

  EXPECT_THAT(session_->Grant(),
              FailsWith(absl::StatusCode::kFailedPrecondition, Reason::kSessionClosed));
}

}  // namespace
}  // namespace switchyard
