#include "services/worker/gateway_sessions.h"

#include <thread>

#include "gtest/gtest.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class CountingSession final : public GatewaySessions::Session {
 public:
  void OnLeaving() override { ++told; }
  int told = 0;
};

TimePoint Now() { return SteadyClock().Now(); }

TEST(GatewaySessionsTest, TellsEachSessionOnceAndTakesNoMore) {
  GatewaySessions sessions;
  CountingSession one;
  CountingSession gone;
  CountingSession late;
  EXPECT_TRUE(sessions.Enter(&one));
  EXPECT_TRUE(sessions.Enter(&gone));
  EXPECT_EQ(sessions.open(), 2U);
  sessions.Exit(&gone);
  EXPECT_EQ(sessions.open(), 1U);

  sessions.Leave();
  sessions.Leave();

  EXPECT_EQ(one.told, 1);
  EXPECT_EQ(gone.told, 0);
  EXPECT_FALSE(sessions.Enter(&late));
  sessions.Exit(&one);
}

TEST(GatewaySessionsTest, WaitsForTheLastSession) {
  GatewaySessions sessions;
  CountingSession one;
  sessions.Enter(&one);
  sessions.Leave();
  std::thread ender([&] { sessions.Exit(&one); });
  const TimePoint begin = Now();

  sessions.WaitUntilDone(seconds(30), begin + seconds(60));

  EXPECT_LT(Now() - begin, seconds(20));
  ender.join();
}

TEST(GatewaySessionsTest, ASessionWithoutStepsIsWaitedForUntilItWasIdle) {
  GatewaySessions sessions;
  CountingSession one;
  sessions.Enter(&one);
  sessions.BeginStep();
  sessions.EndStep();
  sessions.Leave();
  const TimePoint begin = Now();

  sessions.WaitUntilDone(milliseconds(60), begin + seconds(60));

  EXPECT_GE(Now() - begin, milliseconds(50));
  EXPECT_LT(Now() - begin, seconds(20));
  sessions.Exit(&one);
}

TEST(GatewaySessionsTest, AStepIsWaitedForUntilTheTimeIsOver) {
  GatewaySessions sessions;
  CountingSession one;
  sessions.Enter(&one);
  sessions.BeginStep();
  sessions.Leave();
  const TimePoint begin = Now();

  sessions.WaitUntilDone(milliseconds(1), begin + milliseconds(80));

  EXPECT_GE(Now() - begin, milliseconds(80));
  sessions.EndStep();
  sessions.Exit(&one);
}

}  // namespace
}  // namespace switchyard
