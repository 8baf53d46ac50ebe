#include "services/system/health_monitor.h"

#include <atomic>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "services/system/grpc_health.h"
#include "switchyard/v1/coordinator.grpc.pb.h"
#include "tests/services/health_check.h"
#include "tests/services/sink_log.h"
#include "tests/testing/status_matchers.h"

namespace switchyard {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HealthOf;

TEST(TurnWatchTest, CountsFromTheLastTurnThatItSaw) {
  ManualClock clock;
  clock.Advance(seconds(100));
  TurnWatch watch;

  EXPECT_EQ(watch.StandsStill(0, clock.Now()), Duration::zero()) << "nothing is known so far";
  clock.Advance(seconds(2));
  EXPECT_EQ(watch.StandsStill(0, clock.Now()), seconds(2));
  clock.Advance(seconds(1));
  EXPECT_EQ(watch.StandsStill(0, clock.Now()), seconds(3));
  EXPECT_EQ(watch.StandsStill(1, clock.Now()), Duration::zero());
  clock.Advance(seconds(2));
  EXPECT_EQ(watch.StandsStill(1, clock.Now()), seconds(2));
}

// SIGSTOP, or a machine without CPUs to spare.
TEST(TurnWatchTest, AStoppedProcessIsNoLoopThatStandsStill) {
  ManualClock clock;
  TurnWatch watch;
  EXPECT_EQ(watch.StandsStill(5, clock.Now()), Duration::zero());

  clock.Advance(seconds(60));

  EXPECT_EQ(watch.StandsStill(5, clock.Now()), Duration::zero());
  clock.Advance(seconds(1));
  EXPECT_EQ(watch.StandsStill(5, clock.Now()), seconds(1));
}

TEST(HealthMonitorTest, PublishesTheFirstStateAndEachChange) {
  std::atomic<bool> ready{false};
  testing::SinkLog log;
  HealthMonitor monitor([&] { return Health{.not_live = "", .not_ready = ready ? "" : "wait"}; },
                        milliseconds(1));

  monitor.Publish([&](const Health& health) { log.Add(health.ready() ? "ready" : "not"); });
  ready = true;
  ASSERT_TRUE(log.WaitFor(2)) << "the monitor looks by itself";
  ready = false;
  EXPECT_EQ(monitor.Look().not_ready, "wait");

  EXPECT_THAT(log.lines(), ::testing::ElementsAre("not", "ready", "not"));
}

// What stands still has to be noticed before anybody asks.
TEST(HealthMonitorTest, LooksByItself) {
  std::atomic<int> looks{0};
  const HealthMonitor monitor(
      [&] {
        ++looks;
        return Health{};
      },
      milliseconds(1));

  const TimePoint end = SteadyClock().Now() + seconds(20);
  while (looks < 3 && SteadyClock().Now() < end) {
  }
  EXPECT_GE(looks, 3);
}

TEST(GrpcHealthTest, LivenessAndReadinessAreTwoNamesOfOnePort) {
  v1::CoordinatorService::Service service;
  SY_ASSERT_OK_AND_ASSIGN(const auto server, GrpcServer::Start({}, {&service}));

  SetGrpcHealth({.not_live = "", .not_ready = "wait"}, "ready", server.get());
  EXPECT_EQ(HealthOf(server->endpoint(), ""), testing::kServing);
  EXPECT_EQ(HealthOf(server->endpoint(), "ready"), testing::kNotServing);

  SetGrpcHealth({}, "ready", server.get());
  EXPECT_EQ(HealthOf(server->endpoint(), "ready"), testing::kServing);

  SetGrpcHealth({.not_live = "dead", .not_ready = "dead"}, "ready", server.get());
  EXPECT_EQ(HealthOf(server->endpoint(), ""), testing::kNotServing);
}

}  // namespace
}  // namespace switchyard
