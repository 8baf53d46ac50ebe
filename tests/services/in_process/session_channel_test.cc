// The coordinator's half, and workers that are not there. That an attachment carries rows is for
// tests/e2e/loopback_test.cc.
#include "services/in_process/session_channel.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "services/in_process/agent_channel.h"
#include "tests/services/in_process/agreeable_agent.h"
#include "tests/services/in_process/driver_fixture.h"

namespace switchyard {
namespace {

using testing::AgreeableAgent;
using testing::Brief;
using testing::FailsWith;
using testing::SinkLog;

constexpr Duration kLong = std::chrono::seconds(20);

class WatchLog final : public WatchSink {
 public:
  void OnPlan(const PlanUpdate& news) override {
    log.Add(absl::StrCat("plan ", news.plan.epoch.value));
  }
  void OnWatchEnded(const absl::Status& why) override { log.Add("ended " + Brief(why)); }
  SinkLog log;
};

class AttachLog final : public AttachSink {
 public:
  void OnAttached(const AttachGrant& /*grant*/) override { log.Add("attached"); }
  void OnBound(Epoch epoch, const absl::Status& result) override {
    log.Add(absl::StrCat("bound ", epoch.value, " ", Brief(result)));
  }
  void OnAttachEnded(const absl::Status& why) override { log.Add("ended " + Brief(why)); }
  SinkLog log;
};

class InProcessSessionChannelTest : public testing::DriverFixture {
 protected:
  void SetUp() override {
    DriverFixture::SetUp();
    agents_ = MakeInProcessAgentChannel(driver_.get());
    channel_ = MakeInProcessSessionChannel(driver_.get(), &workers_);
  }
  void Serve() {
    agent_ = std::make_unique<AgreeableAgent>(agents_.get(), "w0");
    ASSERT_NO_FATAL_FAILURE(Apply());
    agent_->Register();
    ASSERT_TRUE(ServesEventually());
  }
  static WatchRequest WatchOf(const SessionGrant& grant) {
    return {grant.session, grant.plan.deployment, grant.request.phase, grant.plan.epoch,
            grant.hash};
  }

  InProcessWorkers workers_;
  std::unique_ptr<AgentChannel> agents_;
  std::unique_ptr<SessionChannel> channel_;
  std::unique_ptr<AgreeableAgent> agent_;
};

TEST_F(InProcessSessionChannelTest, OpensWatchesAndClosesASession) {
  ASSERT_NO_FATAL_FAILURE(Serve());

  SY_ASSERT_OK_AND_ASSIGN(const SessionGrant grant, channel_->OpenSession({}, kLong));
  WatchLog log;
  const auto watch = channel_->Watch(WatchOf(grant), &log);
  ASSERT_TRUE(Eventually([this] { return driver_->View().deployments[0].sessions == 1; }));
  SY_EXPECT_OK(channel_->CloseSession(grant.session, kLong));

  EXPECT_EQ(grant.plan.epoch, Epoch{1});
  EXPECT_TRUE(log.log.WaitForLast("ended "));
  EXPECT_EQ(driver_->View().deployments[0].sessions, 0);
}

TEST_F(InProcessSessionChannelTest, RefusalsComeAsTheyAre) {
  EXPECT_THAT(channel_->OpenSession({}, kLong),
              FailsWith(absl::StatusCode::kNotFound, Reason::kUnknownModel));
  WatchLog log;
  WatchRequest order;
  order.deployment = "none";

  const auto watch = channel_->Watch(order, &log);

  EXPECT_TRUE(log.log.WaitForLast("ended NOT_FOUND "));
}

TEST_F(InProcessSessionChannelTest, ACoordinatorThatHasEndedIsLost) {
  driver_->Shutdown(std::chrono::seconds(1));
  WatchLog log;

  EXPECT_THAT(channel_->OpenSession({}, kLong),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost));
  EXPECT_THAT(channel_->CloseSession(SessionId{1, 2}, kLong),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kCoordinatorLost));
  const auto watch = channel_->Watch({}, &log);

  EXPECT_EQ(log.log.lines(), std::vector<std::string>{"ended UNAVAILABLE COORDINATOR_LOST"});
}

TEST_F(InProcessSessionChannelTest, AWorkerThatIsNotThereIsLost) {
  AttachLog log;

  const auto stream = channel_->Attach("inproc:w9", AttachRequest{}, &log);
  stream->Bind({});
  stream->Release({});

  EXPECT_EQ(log.log.lines(), std::vector<std::string>{"ended UNAVAILABLE WORKER_LOST"});
  EXPECT_THAT(channel_->GetCounters("inproc:w9", SessionId{1, 2}, kLong),
              FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
}

TEST(InProcessWorkersTest, ARemovedWorkerIsGoneForThoseWhoStillHoldIt) {
  InProcessWorkers workers;
  // Never called: a worker that is retired answers by itself.
  workers.Add("inproc:w0", "w0", nullptr);
  const std::shared_ptr<InProcessWorker> held = workers.Find("inproc:w0");
  ASSERT_NE(held, nullptr);

  workers.Remove("inproc:w0");
  workers.Remove("inproc:w0");

  EXPECT_EQ(workers.Find("inproc:w0"), nullptr);
  EXPECT_EQ(held->worker_id(), "w0");
  const absl::Status gone =
      held->Call<absl::Status>([](ExpertService& /*experts*/) { return absl::OkStatus(); });
  EXPECT_THAT(gone, FailsWith(absl::StatusCode::kUnavailable, Reason::kWorkerLost));
  EXPECT_EQ(MetadataOf(gone).at("worker"), "w0");
}

}  // namespace
}  // namespace switchyard
