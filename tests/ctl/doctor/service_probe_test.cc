#include "ctl/doctor/service_probe.h"

#include <chrono>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "core/protocol_version.h"
#include "ctl/coordinator_client.h"
#include "tests/ctl/scripted_coordinator.h"
#include "tests/testing/silent_port.h"
#include "tests/testing/status_matchers.h"

namespace switchyard::ctl {
namespace {

using switchyard::testing::IsOk;
using switchyard::testing::ScriptedCoordinator;
using switchyard::testing::SilentPort;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

ServiceFacts Probe(const std::string& target, Duration all) {
  CoordinatorClient coordinator(target, std::min<Duration>(all, std::chrono::seconds(5)));
  const auto ask = [](const std::vector<v1::Worker>& workers, const v1::GetStatusRequest& request) {
    EXPECT_TRUE(request.metrics());
    std::vector<PortAnswer> answers(workers.size());
    for (PortAnswer& each : answers) each.status = absl::UnavailableError("refused");
    return answers;
  };
  return ProbeService({.target = target,
                       .security = nullptr,
                       .version = [&] { return coordinator.Version(); },
                       .workers = [&] { return coordinator.Workers(); },
                       .events = [&] { return coordinator.Events(0); },
                       .ask = ask,
                       .next_step = [](const absl::Status& /*status*/) { return "retry"; }},
                      Budget(all));
}

TEST(ServiceProbeTest, LooksNamesUpWithinItsTime) {
  const NameFacts address = ProbeName("127.0.0.1", std::chrono::seconds(30));
  EXPECT_THAT(address.wrong, IsEmpty());
  EXPECT_EQ(address.first, "127.0.0.1");
  EXPECT_THAT(ProbeName("localhost", std::chrono::seconds(30)).wrong, IsEmpty());
  EXPECT_THAT(ProbeName("nobody.invalid", std::chrono::seconds(2)).wrong, Not(IsEmpty()));
  EXPECT_THAT(ProbeName("127.0.0.1", Duration::zero()).wrong, HasSubstr("in time"));
}

TEST(ServiceProbeTest, TakesTheHostOfAnEndpoint) {
  EXPECT_EQ(HostOf("w0.pool:7710"), "w0.pool");
  EXPECT_EQ(HostOf("[::1]:7710"), "::1");
  EXPECT_EQ(HostOf("alone"), "alone");
  EXPECT_EQ(HostOf(""), "");
}

TEST(ServiceProbeTest, AsksTheCoordinatorAndTheFirstWorkers) {
  ScriptedCoordinator coordinator;
  coordinator.workers.clear_workers();
  for (std::size_t i = 0; i < kWorkersAskedMax + 6; ++i) {
    v1::Worker& worker = *coordinator.workers.add_workers();
    worker.set_id(absl::StrCat("w", i));
    worker.set_endpoint("127.0.0.1:1");
    worker.set_state(v1::WORKER_STATE_STUCK);
    worker.set_problem("stands still");
    worker.set_protocol_version(7);
  }
  v1::Event& event = *coordinator.events.add_events();
  event.set_number(1);
  event.mutable_last()->set_seconds(77);

  const ServiceFacts facts = Probe(coordinator.endpoint(), std::chrono::seconds(60));

  EXPECT_THAT(facts.own_version, StartsWith("0."));
  EXPECT_EQ(facts.own_protocol, kProtocolVersion);
  ASSERT_TRUE(facts.coordinator.has_value());
  EXPECT_EQ(facts.coordinator->version, "9.8.7");
  EXPECT_EQ(facts.coordinator->protocol, 6U);
  EXPECT_EQ(facts.coordinator->ready, ServingState::kUnknown);  // it has no such name
  ASSERT_THAT(facts.workers, SizeIs(kWorkersAskedMax + 6));
  EXPECT_EQ(facts.workers[0].state, "stuck");
  EXPECT_EQ(facts.workers[0].problem, "stands still");
  EXPECT_EQ(facts.workers[0].protocol, 7U);
  EXPECT_TRUE(facts.workers[kWorkersAskedMax - 1].asked);
  EXPECT_TRUE(absl::IsUnavailable(facts.workers[0].answer));
  EXPECT_FALSE(facts.workers[kWorkersAskedMax].asked);
  ASSERT_THAT(facts.worker_names, SizeIs(1));
  EXPECT_EQ(facts.newest_event_s, 77);
}

// A port that takes connections and says nothing, as behind a firewall that drops.
TEST(ServiceProbeTest, WaitsNoLongerThanItMay) {
  SilentPort port;
  port.Listen();
  const auto before = std::chrono::steady_clock::now();
  const ServiceFacts facts = Probe(port.endpoint(), std::chrono::milliseconds(500));
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(10));
  ASSERT_TRUE(facts.coordinator.has_value());
  EXPECT_THAT(facts.coordinator->status, Not(IsOk()));
  EXPECT_EQ(facts.coordinator->next, "retry");
  EXPECT_FALSE(facts.list.has_value());
}

TEST(ServiceProbeTest, AsksNobodyWhenNoTimeIsLeft) {
  const ServiceFacts facts = Probe("127.0.0.1:1", Duration::zero());
  EXPECT_FALSE(facts.coordinator.has_value());
}

}  // namespace
}  // namespace switchyard::ctl
