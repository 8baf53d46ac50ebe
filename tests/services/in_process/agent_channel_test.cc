#include "services/in_process/agent_channel.h"

#include "gtest/gtest.h"

#include "tests/services/in_process/agreeable_agent.h"
#include "tests/services/in_process/driver_fixture.h"

namespace switchyard {
namespace {

using testing::AgreeableAgent;

class InProcessAgentChannelTest : public testing::DriverFixture {
 protected:
  void SetUp() override {
    DriverFixture::SetUp();
    channel_ = MakeInProcessAgentChannel(driver_.get());
  }
  std::unique_ptr<AgentChannel> channel_;
};

TEST_F(InProcessAgentChannelTest, CarriesMessagesBothWays) {
  AgreeableAgent agent(channel_.get(), "w0");
  ASSERT_NO_FATAL_FAILURE(Apply());

  agent.Register();

  EXPECT_TRUE(agent.log().WaitForLast("commit 1"));
  EXPECT_EQ(agent.log().lines(),
            (std::vector<std::string>{"up", "registered", "prepare 1", "commit 1"}));
  EXPECT_TRUE(ServesEventually());
  EXPECT_EQ(driver_->View().workers.at(0).endpoint, "inproc:w0");
}

TEST_F(InProcessAgentChannelTest, TheEndOfAStreamIsNoticed) {
  AgreeableAgent agent(channel_.get(), "w0");
  agent.Register();
  ASSERT_TRUE(agent.log().WaitForLast("registered"));

  agent.Hangup();

  EXPECT_TRUE(Eventually([this] {
    const CoordinatorView view = driver_->View();
    return view.workers.empty() || view.workers[0].state == WorkerState::kDisconnected;
  }));
  EXPECT_EQ(agent.log().lines().back(), "registered");  // its own end is no news to the agent
}

TEST_F(InProcessAgentChannelTest, AMessageOutOfTurnEndsTheStreamWithTheReason) {
  AgreeableAgent first(channel_.get(), "w0");
  first.Register();
  ASSERT_TRUE(first.log().WaitForLast("registered"));

  first.Register();

  EXPECT_TRUE(first.log().WaitForLast("down "));
}

TEST_F(InProcessAgentChannelTest, TheCoordinatorsEndIsTheStreams) {
  AgreeableAgent before(channel_.get(), "w0");
  before.Register();
  ASSERT_TRUE(before.log().WaitForLast("registered"));

  driver_->Shutdown(std::chrono::seconds(1));
  AgreeableAgent after(channel_.get(), "w1");

  EXPECT_TRUE(before.log().WaitForLast("down UNAVAILABLE COORDINATOR_LOST"));
  EXPECT_EQ(after.log().lines(), std::vector<std::string>{"down UNAVAILABLE COORDINATOR_LOST"});
}

}  // namespace
}  // namespace switchyard
